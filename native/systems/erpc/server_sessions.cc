// Sessions of the server (eRPC, section 4.3): made at a client's request, ended by it or with it.
#include <string>

#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kMaxServerSessions = 1U << 16U;

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
  Refusal refusal = Refusal::kNone;
  ServerSession* made = nullptr;
  if (message.slots != options_.slots || message.packet_bytes != options_.packet_bytes ||
      message.checksums != static_cast<std::uint32_t>(options_.checksums) ||
      message.first_request % options_.slots != 0) {
    refusal = Refusal::kOtherOptions;
  } else if (message.credits == 0 || message.credits > options_.credits || !has_room()) {
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
  send_management(session.to, about(session, ManagementKind::kConnected));
}

void Endpoint::end_server_session(ServerSession& session) {
  if (session.state != SessionState::kConnected) return;
  session.state = SessionState::kDisconnecting;
  server_index_.erase(
      client_key(session.client_token, session.client_session, session.client_generation));
  --server_count_;
  transport_.drain();
  reclaim(session);
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
