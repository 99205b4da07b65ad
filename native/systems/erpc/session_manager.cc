// Session management (eRPC, appendix B): sessions are made, tested and ended by datagrams between
// the endpoints, inside their event loops. The paper has a thread with sockets for this; here a
// session ends only if the thread that uses it finds the peer silent.
//
// A peer is dead after failure_timeout of silence in which ten pings were not answered: a node that
// was stopped for a while gives the others time to answer.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/error.h"
#include "fabric/sender.h"
#include "runtime/exchange.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kPings = 10;

/// The fields of a message hold every value that sessions and options may have.
std::uint16_t narrow(std::uint32_t value) { return static_cast<std::uint16_t>(value); }

}  // namespace

std::string Endpoint::address_key(EndpointName name, std::uint32_t incarnation) const {
  return options_.name + "/endpoint/" + std::to_string(name.node) + '/' +
         std::to_string(name.endpoint) + '/' + std::to_string(incarnation);
}

// Returns the number of earlier endpoints of this name.
std::uint32_t Endpoint::publish_address() {
  KnownEndpoint earlier;
  look_up(name(), earlier);
  env_.device().rendezvous().publish_value(address_key(name(), earlier.incarnations),
                                           transport_.address());
  return earlier.incarnations;
}

// Finds the newest incarnation of an endpoint. A look-up of one that does not exist costs little.
// The incarnations have consecutive numbers, so the search doubles its steps, and then halves them:
// an endpoint that has died a thousand times takes 20 look-ups.
void Endpoint::look_up(EndpointName name, KnownEndpoint& known) {
  const auto exists = [&](std::uint32_t number) {
    const auto bytes = env_.device().rendezvous().find(address_key(name, number));
    if (!bytes) return false;
    if (bytes->size() != sizeof known.address)
      runtime::throw_piece(address_key(name, number), bytes->size(), sizeof known.address);
    std::memcpy(&known.address, bytes->data(), sizeof known.address);
    known.incarnations = number + 1;
    return true;
  };
  if (!exists(known.incarnations)) return;
  std::uint32_t step = 1;
  while (exists(known.incarnations + step - 1)) step *= 2;
  for (step /= 2; step != 0; step /= 2) exists(known.incarnations + step - 1);
}

bool Endpoint::look_up(ClientSession& session) {
  const KnownEndpoint& known = *session.known;
  look_up(session.server, *session.known);
  if (known.incarnations == 0) return false;
  if (session.incarnation != known.incarnations) {
    if (session.handle != nullptr) transport_.drain();
    session.handle = transport_.handle_for(known.address);
    session.incarnation = known.incarnations;
    session.address = known.address;
    session.refusal = "";
    session.to = {session.handle.get(), known.address.qp_num, known.address.qkey};
  }
  return true;
}

void Endpoint::ask_to_connect(ClientSession& session, Time now) {
  if (!look_up(session)) return;
  session.asked = now;
  ++session.unanswered;
  send_management(session.to, about(session, ManagementKind::kConnect));
}

void Endpoint::send_management(const Destination& to, const ManagementMessage& message) {
  PacketHeader header;
  header.what = PacketHeader::make_what(PacketKind::kManagement, 0, sizeof message, 0);
  static_assert(sizeof message <= Transport::kControlData);
  transport_.send_control(to, header, &message, sizeof message);
}

ManagementMessage Endpoint::about(const ClientSession& session, ManagementKind kind) const {
  ManagementMessage message{};
  message.kind = kind;
  message.client_token = token_;
  message.server_token = session.server_token;
  message.first_request = session.first_request;
  message.client_endpoint = number_;
  message.client_incarnation = incarnation_;
  message.client_session = narrow(session.index);
  message.client_generation = narrow(session.generation);
  message.server_session = narrow(session.server_session);
  message.server_generation = narrow(session.server_generation);
  message.credits = narrow(options_.credits);
  message.slots = narrow(options_.slots);
  message.packet_bytes = narrow(options_.packet_bytes);
  message.checksums = static_cast<std::uint16_t>(options_.checksums);
  message.sender = transport_.address();
  return message;
}

ManagementMessage Endpoint::about(const ServerSession& session, ManagementKind kind) const {
  ManagementMessage message{};
  message.kind = kind;
  message.is_for_client = 1;
  message.client_token = session.client_token;
  message.server_token = token_;
  message.first_request = session.first_request;
  message.client_session = narrow(session.client_session);
  message.client_generation = narrow(session.client_generation);
  message.server_session = narrow(session.index);
  message.server_generation = narrow(session.generation);
  message.sender = transport_.address();
  return message;
}

// Returns null for an address that cannot be. The fabric checks it when it makes a handle of it.
std::unique_ptr<fabric::AddressHandle> Endpoint::handle_of_peer(const fabric::QpAddress& address) {
  try {
    return transport_.handle_for(address);
  } catch (const Error&) {
    ++counters_.bad_management;
    reached("erpc/bad_address");
    return nullptr;
  }
}

bool Endpoint::is_from(const Packet& packet, const fabric::QpAddress& address) const {
  return bugs_.has(Bug::kSenderNotChecked) ||
         fabric::is_from(packet.source_qpn(), packet.source_node(),
                         transport_.routing_header(packet), address);
}

bool Endpoint::is_peer(const fabric::QpAddress& sender, const fabric::QpAddress& peer) const {
  return fabric::is_same_pair(sender, peer) || bugs_.has(Bug::kSenderNotChecked);
}

// There is no such session here, so the sender may forget its own half at once: a server that has
// connected a session which its client gave up, or either end of a session whose other end was made
// again at the same address.
void Endpoint::deny(const ManagementMessage& message) {
  switch (message.kind) {
    case ManagementKind::kPing:
    case ManagementKind::kConnected:
      return answer_sender(message, ManagementKind::kReset);
    case ManagementKind::kDisconnect:
      return answer_sender(message, ManagementKind::kDisconnected);
    default:
      ++counters_.bad_management;
  }
}

// Answers a message of nobody with whom there is a session.
void Endpoint::answer_sender(const ManagementMessage& message, ManagementKind kind,
                             Refusal reason) {
  const auto handle = handle_of_peer(message.sender);
  if (handle == nullptr) return;
  ManagementMessage answer = message;
  answer.kind = kind;
  answer.reason = reason;
  answer.is_for_client = message.is_for_client == 0 ? 1 : 0;
  answer.sender = transport_.address();
  send_management({handle.get(), message.sender.qp_num, message.sender.qkey}, answer);
  transport_.drain();  // the handle ends here
}

void Endpoint::take_management(const Packet& packet) {
  ManagementMessage message;
  if (packet.bytes != sizeof message || packet.header.size() != sizeof message) {
    ++counters_.bad_management;
    return;
  }
  std::memcpy(&message, packet.data, sizeof message);
  const auto kind = static_cast<std::uint32_t>(message.kind);
  if (kind >= kManagementKinds || message.client_generation >= PacketHeader::kGenerations ||
      message.server_generation >= PacketHeader::kGenerations ||
      message.first_request > PacketHeader::kMaxRequest || message.sender.node >= env_.nodes() ||
      !is_from(packet, message.sender)) {
    ++counters_.bad_management;
    return;
  }
  if (message.kind == ManagementKind::kConnect) {
    take_connect(packet, message);
  } else if (message.is_for_client != 0 && message.client_token == token_) {
    take_for_client(packet, message);
  } else if (message.is_for_client == 0 && message.server_token == token_) {
    take_for_server(message);
  } else {
    reached("erpc/management_of_older_endpoint");
    deny(message);
  }
}

void Endpoint::take_for_client(const Packet& packet, const ManagementMessage& message) {
  ClientSession* session =
      message.client_session < clients_.size() ? clients_[message.client_session].get() : nullptr;
  const bool is_known = session != nullptr && session->state != SessionState::kFree &&
                        session->generation == message.client_generation &&
                        session->first_request == message.first_request &&
                        is_peer(message.sender, session->address);
  if (!is_known) return deny(message);
  if (session->state == SessionState::kConnecting) {
    if (message.kind == ManagementKind::kConnected) take_connected(*session, packet, message);
    if (message.kind == ManagementKind::kRefused) take_refusal(*session, message.reason);
    return;
  }
  const bool is_of_session = session->server_token == message.server_token &&
                             session->server_session == message.server_session &&
                             session->server_generation == message.server_generation;
  if (!is_of_session || session->state == SessionState::kLost) return deny(message);
  if (session->state == SessionState::kDisconnecting) {
    if (message.kind != ManagementKind::kDisconnected && message.kind != ManagementKind::kReset)
      return;
    --client_count_;
    session->state = SessionState::kFree;
  } else if (session->state == SessionState::kConnected) {
    if (message.kind == ManagementKind::kPing) {
      session->heard = env_.now();
      send_management(session->to, about(*session, ManagementKind::kPong));
    } else if (message.kind == ManagementKind::kPong) {
      session->heard = env_.now();
      session->unanswered = 0;
    } else if (message.kind == ManagementKind::kReset) {
      ++counters_.resets;
      reached("erpc/reset");
      lose_session(*session, "the server has ended the session");
    }
  }
}

// Other sessions of the server may end meanwhile, or receives come back with a restart. Until
// connect_timeout the client asks again. Other options stay what they are.
void Endpoint::take_refusal(ClientSession& session, Refusal reason) {
  bool is_final = bugs_.has(Bug::kRefusalIsFinal);
  if (reason == Refusal::kNoReceives) {
    session.refusal =
        "the server has no receives left for the session's credits; raise receive_entries there, "
        "or lower credits";
  } else if (reason == Refusal::kNoSessions) {
    session.refusal = "the server has no sessions left";
  } else {
    session.refusal =
        "the server has other options; give both the same slots, packet_bytes and checksums, and "
        "the client no more credits than the server";
    is_final = true;
  }
  if (is_final) lose_session(session, session.refusal);
}

void Endpoint::take_connected(ClientSession& session, const Packet& packet,
                              const ManagementMessage& message) {
  session.state = SessionState::kConnected;
  session.source = packet.source;
  session.server_token = message.server_token;
  session.server_session = message.server_session;
  session.server_generation = message.server_generation;
  session.peer = PacketHeader::make_whose(0, message.server_session, message.server_generation);
  session.heard = session.known->connected = env_.now();
  session.unanswered = 0;
  start_waiting(session);
}

void Endpoint::take_for_server(const ManagementMessage& message) {
  ServerSession* session =
      message.server_session < servers_.size() ? servers_[message.server_session].get() : nullptr;
  const bool is_known = session != nullptr && session->state == SessionState::kConnected &&
                        session->generation == message.server_generation &&
                        session->client_token == message.client_token &&
                        session->client_session == message.client_session &&
                        session->client_generation == message.client_generation &&
                        session->first_request == message.first_request &&
                        is_peer(message.sender, session->address);
  if (!is_known) {
    if (message.kind == ManagementKind::kPing && bugs_.has(Bug::kAnyPingAnswered))
      return answer_sender(message, ManagementKind::kPong);
    return deny(message);
  }
  session->heard = env_.now();
  session->unanswered = 0;
  switch (message.kind) {
    case ManagementKind::kPing:
      send_management(session->to, about(*session, ManagementKind::kPong));
      return;
    case ManagementKind::kDisconnect:
      send_management(session->to, about(*session, ManagementKind::kDisconnected));
      end_server_session(*session);
      return;
    case ManagementKind::kReset:
      reached("erpc/client_denies_session");
      end_server_session(*session);
      return;
    case ManagementKind::kPong:
      return;
    default:
      ++counters_.bad_management;
  }
}

void Endpoint::manage(Time now) {
  const Time tick = options_.failure_timeout / kPings;
  manage_at_ = now + tick;
  for (const auto& session : clients_) manage_client(*session, now);
  for (const auto& session : servers_) manage_server(*session, now);
}

// Returns whether a request to connect seems lost. A server that still connects others has not come
// to it, and a repeated request would be one more to answer. A client that creates many sessions is
// away from its loop for long, and its answers wait unread. In the second half of its time a
// session asks all the same.
bool Endpoint::is_to_ask_again(const ClientSession& session, Time now) const {
  const Time interval = options_.connect_interval;
  const bool is_busy = now - std::max(session.known->connected, connecting_since_) < interval &&
                       now < session.insists_from;
  return now - session.asked >= interval && !is_busy;
}

void Endpoint::manage_client(ClientSession& session, Time now) {
  const Time silence = now - session.heard;
  switch (session.state) {
    case SessionState::kConnecting:
      if (now >= session.connect_by) {
        lose_session(session, why_silent(session));
        return;
      }
      if (is_to_ask_again(session, now)) ask_to_connect(session, now);
      manage_at_ = std::min(manage_at_, now + options_.connect_interval);
      return;
    case SessionState::kConnected: {
      if (session.unanswered >= kPings && silence > options_.failure_timeout) {
        // A server that was only slow frees its half at once.
        send_management(session.to, about(session, ManagementKind::kDisconnect));
        lose_session(session, "the server is silent");
        return;
      }
      // A session without requests is tested rarely.
      const bool is_used = std::popcount(session.free_slots) != static_cast<int>(options_.slots);
      if (silence <= options_.failure_timeout / (is_used ? kPings : 2)) return;
      ++session.unanswered;
      send_management(session.to, about(session, ManagementKind::kPing));
      return;
    }
    case SessionState::kDisconnecting:
      if (session.unanswered++ == kPings) {
        --client_count_;
        session.state = SessionState::kFree;
        return;
      }
      send_management(session.to, about(session, ManagementKind::kDisconnect));
      manage_at_ = std::min(manage_at_, now + options_.connect_interval);
      return;
    case SessionState::kFree:
    case SessionState::kLost:
      return;
  }
}

void Endpoint::manage_server(ServerSession& session, Time now) {
  reclaim(session);
  if (session.state != SessionState::kConnected || now - session.heard <= options_.failure_timeout)
    return;
  if (session.unanswered >= kPings && !bugs_.has(Bug::kDeadClientKept)) {
    reached("erpc/client_silent");
    end_server_session(session);
    return;
  }
  ++session.unanswered;
  send_management(session.to, about(session, ManagementKind::kPing));
}

}  // namespace pyrdma::erpc
