// Sessions of the client (eRPC, section 4.3): made, destroyed, and lost with their server (appendix
// B).
#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kMaxSessions = 1U << 16U;  // the header's field

std::string name_of(const EndpointName& name) {
  return "endpoint " + std::to_string(name.endpoint) + " of node " + std::to_string(name.node);
}

}  // namespace

const char* Endpoint::why_silent(const ClientSession& session) {
  if (*session.refusal != '\0') return session.refusal;
  return session.incarnation == 0
             ? "no such endpoint was made: does that node make it, under the same name?"
             : "no answer: does a thread there run the event loop of that endpoint?";
}

const ClientSession* Endpoint::find_session(SessionId id) const {
  const std::uint32_t index = id & 0xffffU;
  if (index >= clients_.size()) return nullptr;
  const ClientSession& session = *clients_[index];
  return session.id() == id && session.state != SessionState::kFree ? &session : nullptr;
}

void Endpoint::throw_session(SessionId id, const char* call) {
  throw Error(ErrorCode::kInvalidArgument,
              std::string(call) + ": session " + std::to_string(id) +
                  " does not exist at this endpoint; use what create_session() returned, once "
                  "per session");
}

ClientSession& Endpoint::session_of(SessionId id, const char* call) {
  const ClientSession* session = find_session(id);
  if (session == nullptr) [[unlikely]]
    throw_session(id, call);
  return const_cast<ClientSession&>(*session);
}

bool Endpoint::has_room() const {
  return options_.overcommit ||
         (std::uint64_t{client_count_} + server_count_ + 1) * options_.credits <=
             options_.receive_entries;
}

ClientSession& Endpoint::new_session() {
  for (const auto& session : clients_) {
    if (client_count_ == clients_.size()) break;  // none is free
    if (session->state != SessionState::kFree) continue;
    session->generation = (session->generation + 1) % PacketHeader::kGenerations;
    return *session;
  }
  if (clients_.size() == kMaxSessions) {
    throw Error(ErrorCode::kExhausted, "create_session: an endpoint has at most " +
                                           std::to_string(kMaxSessions) + " client sessions");
  }
  ClientSession& session = *clients_.emplace_back(std::make_unique<ClientSession>());
  session.index = static_cast<std::uint32_t>(clients_.size() - 1);
  session.generation = first_generation_;
  return session;
}

SessionId Endpoint::create_session(EndpointName server, std::optional<Time> connect_timeout) {
  if (server.node >= env_.nodes()) {
    throw Error(ErrorCode::kInvalidArgument, "create_session: node " + std::to_string(server.node) +
                                                 " of " + std::to_string(env_.nodes()) +
                                                 " nodes; the first is node 0");
  }
  if (!has_room()) {
    throw Error(ErrorCode::kExhausted,
                "create_session: " + std::to_string(client_count_ + server_count_) +
                    " sessions with " + std::to_string(options_.credits) +
                    " credits each use the endpoint's " + std::to_string(options_.receive_entries) +
                    " receives; raise the option receive_entries, or lower credits");
  }
  ClientSession& session = new_session();
  const Time now = env_.now();
  ++client_count_;
  session.state = SessionState::kConnecting;
  session.number = ++sessions_made_;
  session.first_request = options_.first_request.value_or(rng_() & PacketHeader::kMaxRequest) &
                          ~std::uint64_t{options_.slots - 1};
  session.credits = options_.credits;
  session.free_slots = options_.slots == 64 ? ~0ULL : (1ULL << options_.slots) - 1;
  session.stalled_slots = session.turn = 0;
  session.in_wheel = session.unanswered = session.incarnation = 0;
  session.rate = RateControl(options_, now);
  session.round_trip = RoundTrip();
  session.slots = std::vector<ClientSlot>(options_.slots);
  for (std::uint32_t i = 0; i < options_.slots; ++i) {
    session.slots[i].index = static_cast<std::uint8_t>(i);
    session.slots[i].request_number = session.first_request + i;
    session.slots[i].session = &session;
  }
  session.server = server;
  session.known = &known_[{server.node, server.endpoint}];
  session.heard = session.asked = now;
  const Time patience = connect_timeout.value_or(options_.connect_timeout);
  session.connect_by = now + patience;
  session.insists_from = now + patience / 2;
  session.why_lost = session.refusal = "";
  try {
    ask_to_connect(session, now);
  } catch (...) {  // the device has no memory for the address: nobody knows the session
    --client_count_;
    session.state = SessionState::kFree;
    throw;
  }
  manage_at_ = std::min(manage_at_, now + options_.connect_interval);
  is_due_earlier_ = true;
  return session.id();
}

bool Endpoint::is_connected(SessionId id) const {
  const ClientSession* session = find_session(id);
  return session != nullptr && session->state == SessionState::kConnected;
}

bool Endpoint::is_lost(SessionId id) const {
  const ClientSession* session = find_session(id);
  return session == nullptr || session->state == SessionState::kLost;
}

const char* Endpoint::why_lost(SessionId id) const {
  const ClientSession* session = find_session(id);
  if (session == nullptr) return "it does not exist";
  if (session->state == SessionState::kConnecting) return session->refusal;
  return session->state == SessionState::kLost ? session->why_lost : "";
}

double Endpoint::rate_of(SessionId id) const {
  const ClientSession* session = find_session(id);
  return session == nullptr ? 0 : session->rate.rate();
}

std::uint32_t Endpoint::credits_of(SessionId id) const {
  const ClientSession* session = find_session(id);
  return session == nullptr ? 0 : session->credits;
}

void Endpoint::destroy_session(SessionId id) {
  ClientSession& session = session_of(id, "destroy_session");
  for (const ClientSlot& slot : session.slots) {
    if (!slot.is_active && session.backlog.empty()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "destroy_session: the session to " + name_of(session.server) +
                    " has requests; run the event loop until they have ended");
  }
  if (session.state == SessionState::kDisconnecting) return;
  if (session.state == SessionState::kConnected) {
    session.state = SessionState::kDisconnecting;
    session.unanswered = 0;
    manage_at_ = 0;
    is_due_earlier_ = true;
    return;
  }
  // The server knows of no session, or it is dead. One that connects it later is told that there is
  // no client.
  --client_count_;
  session.state = SessionState::kFree;
}

void Endpoint::connect(std::span<const SessionId> sessions) {
  connecting_since_ = env_.now();
  const Time deadline = connecting_since_ + options_.connect_timeout;
  std::size_t done = 0;
  const auto is_over = [&] {
    while (done < sessions.size() && is_connected(sessions[done])) ++done;
    return done == sessions.size() || is_lost(sessions[done]);
  };
  run_until(is_over, deadline);
  if (done == sessions.size()) return;
  const ClientSession& session = session_of(sessions[done], "connect");
  std::string why = session.why_lost;
  if (why.empty()) why = why_silent(session);
  throw Error(ErrorCode::kTimeout, "node " + std::to_string(env_.node()) +
                                       " could not connect to " + name_of(session.server) + ": " +
                                       why)
      .blaming({session.server.node});
}

// The NIC may still read the requests, and the wheel may name them (appendix B). The drain ends the
// first; entries of the wheel name the request, and find that it has ended.
void Endpoint::lose_session(ClientSession& session, const char* why) {
  reached("erpc/session_lost");
  ++counters_.lost_sessions;
  session.state = SessionState::kLost;
  session.why_lost = why;
  session.stalled_slots = 0;
  transport_.drain();
  for (ClientSlot& slot : session.slots) {
    if (!slot.is_active || bugs_.has(Bug::kDeathIgnored)) continue;
    deactivate(slot);
    fail_later(slot.call,
               bugs_.has(Bug::kNotSentClaimed) ? Outcome::kNotSent : Outcome::kSessionLost);
  }
  session.credits = options_.credits;
  session.free_slots = options_.slots == 64 ? ~0ULL : (1ULL << options_.slots) - 1;
  Backlog waiting = std::exchange(session.backlog, {});
  if (bugs_.has(Bug::kLostInBacklog)) return;
  while (!waiting.empty()) fail_later(waiting.pop(), Outcome::kNotSent);
}

}  // namespace pyrdma::erpc
