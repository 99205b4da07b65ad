// Sessions of the server (eRPC, section 4.3): made at a client's request, ended by it or with it.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "fabric/sender.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kMaxServerSessions = 1U << 16U;

std::uint64_t served_key(EndpointName name) {
  return std::uint64_t{name.node} << 32U | name.endpoint;
}

std::uint64_t client_key(std::uint64_t token, std::uint32_t session, std::uint32_t generation) {
  return mix64(token ^ mix64(session | std::uint64_t{generation} << 32U));
}

}  // namespace

// Sessions that have ended keep their places while handlers run. Returns null when all are taken.
ServerSession* Endpoint::new_server_session() {
  for (const auto& session : servers_) {
    if (server_count_ == servers_.size()) break;  // none is free
    if (session->state != SessionState::kFree) continue;
    session->generation = (session->generation + 1) % PacketHeader::kGenerations;
    return session.get();
  }
  if (servers_.size() == kMaxServerSessions) return nullptr;
  ServerSession& session = *servers_.emplace_back(std::make_unique<ServerSession>());
  session.index = static_cast<std::uint32_t>(servers_.size() - 1);
  session.generation = first_generation_;
  return &session;
}

// Returns whether the rendezvous names the sender as the newest endpoint of its name.
bool Endpoint::is_newest(const ManagementMessage& message) {
  const EndpointName name{message.sender.node, message.client_endpoint};
  KnownEndpoint& known = known_[{name.node, name.endpoint}];
  try {
    look_up(name, known);
  } catch (const Error&) {
    return false;  // without a rendezvous nobody is newer
  }
  return known.incarnations == message.client_incarnation + 1 &&
         fabric::is_same_pair(message.sender, known.address);
}

// A name has one endpoint at a time, so one of two incarnations has ended: its sessions are over at
// once, or the message is a late one. The message is not asked which: any endpoint of the node
// could give a high number. Returns whether the sender may have a session.
bool Endpoint::ends_older(const ManagementMessage& message) {
  const EndpointName name{message.sender.node, message.client_endpoint};
  const auto served = served_.find(served_key(name));
  if (served == served_.end() || served->second.token == message.client_token ||
      bugs_.has(Bug::kOlderSessionsKept))
    return true;
  if (!bugs_.has(Bug::kLateConnectTaken) && !is_newest(message)) {
    ++counters_.bad_management;
    reached("erpc/connect_of_older_endpoint");
    return false;
  }
  reached("erpc/older_endpoint_ended");
  for (const auto& session : servers_) {
    if (session->client == name && session->client_token != message.client_token)
      end_server_session(*session);
  }
  return true;
}

void Endpoint::take_connect(const Packet& packet, const ManagementMessage& message) {
  const std::uint64_t key =
      client_key(message.client_token, message.client_session, message.client_generation);
  if (const auto found = server_index_.find(key); found != server_index_.end()) {
    ServerSession& session = *servers_[found->second];
    if (session.first_request == message.first_request) {
      // The client has not heard the answer.
      reached("erpc/connect_again");
      send_management(session.to, about(session, ManagementKind::kConnected));
      return;
    }
    // The client's generations have gone round, and it has ended that session long ago.
    end_server_session(session);
  }
  if (!ends_older(message)) return;
  Refusal refusal = Refusal::kNone;
  ServerSession* made = nullptr;
  if (message.slots != options_.slots || message.packet_bytes != options_.packet_bytes ||
      message.checksums != static_cast<std::uint32_t>(options_.checksums) ||
      message.first_request % options_.slots != 0 || message.credits == 0 ||
      message.credits > options_.credits) {
    refusal = Refusal::kOtherOptions;
  } else if (!has_room()) {
    refusal = Refusal::kNoReceives;
  } else if (made = new_server_session(); made == nullptr) {
    refusal = Refusal::kNoSessions;
  }
  if (refusal != Refusal::kNone) {
    reached("erpc/connect_refused");
    answer_sender(message, ManagementKind::kRefused, refusal);
    return;
  }
  std::unique_ptr<fabric::AddressHandle> handle = handle_of_peer(message.sender);
  if (handle == nullptr) return;
  ServerSession& session = *made;
  ++server_count_;
  session.state = SessionState::kConnected;
  session.peer = PacketHeader::make_whose(0, message.client_session, message.client_generation);
  session.source = packet.source;
  session.client = {message.sender.node, message.client_endpoint};
  session.address = message.sender;
  session.handle = std::move(handle);
  session.to = {session.handle.get(), message.sender.qp_num, message.sender.qkey};
  session.heard = env_.now();
  session.unanswered = 0;
  session.client_token = message.client_token;
  session.client_session = message.client_session;
  session.client_generation = message.client_generation;
  session.slots = std::vector<ServerSlot>(options_.slots);
  session.first_request = message.first_request;
  for (std::uint32_t i = 0; i < options_.slots; ++i)
    session.slots[i].request_number = message.first_request + i;
  server_index_[key] = session.index;
  Served& served = served_[served_key(session.client)];
  served.token = message.client_token;
  ++served.sessions;
  send_management(session.to, about(session, ManagementKind::kConnected));
}

void Endpoint::end_server_session(ServerSession& session) {
  if (session.state != SessionState::kConnected) return;
  session.state = SessionState::kDisconnecting;
  server_index_.erase(
      client_key(session.client_token, session.client_session, session.client_generation));
  --server_count_;
  if (const auto served = served_.find(served_key(session.client)); --served->second.sessions == 0)
    served_.erase(served);
  transport_.drain();
  reclaim(session);
}

std::uint32_t Endpoint::kept_sessions() const {
  return static_cast<std::uint32_t>(std::ranges::count(
      servers_, SessionState::kDisconnecting, [](const auto& each) { return each->state; }));
}

// Handlers that have not answered keep the session (appendix B).
void Endpoint::reclaim(ServerSession& session) {
  if (session.state != SessionState::kDisconnecting || session.running != 0) return;
  for (ServerSlot& slot : session.slots) {
    release_response(slot);
    if (slot.request != nullptr) slot.request->pool().give_back(slot.request);
    if (slot.preallocated != nullptr) slot.preallocated->pool().give_back(slot.preallocated);
  }
  session.slots.clear();
  session.handle.reset();
  session.state = SessionState::kFree;
}

}  // namespace pyrdma::erpc
