// A request begins: in a slot if one is free, else in the session's backlog (eRPC, section 4.3). It
// ends with its continuation.
#include <bit>
#include <string>
#include <utility>

#include "base/error.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void throw_request(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "enqueue_request: " + what);
}

}  // namespace

[[gnu::flatten]] void Endpoint::enqueue_request(const Request& request) {
  const Scope step(env_, scope::enqueue_request);
  if (request.request == nullptr || request.response == nullptr || request.done == nullptr ||
      request.request == request.response) [[unlikely]] {
    throw_request("give a request buffer, another buffer for the response, and a continuation");
  }
  if (request.request->size() > options_.max_message) [[unlikely]] {
    throw_request("a request of " + std::to_string(request.request->size()) +
                  " bytes: the limit is " + std::to_string(options_.max_message) +
                  "; raise the option max_message, or send it in parts");
  }
  ClientSession& session = session_of(request.session, "enqueue_request");
  ++counters_.requests;
  if (session.state == SessionState::kConnected && session.free_slots != 0) [[likely]] {
    start(session, request);
    return;
  }
  if (session.state == SessionState::kLost) {
    fail_later(request, Outcome::kNotSent);
    return;
  }
  if (session.state == SessionState::kDisconnecting)
    throw_request("the session has been destroyed; make a new one");
  if (session.backlog.size() >= options_.backlog) {
    --counters_.requests;
    throw Error(ErrorCode::kExhausted,
                "enqueue_request: " + std::to_string(session.backlog.size()) +
                    " requests wait for a slot of the session to endpoint " +
                    std::to_string(session.server.endpoint) + " of node " +
                    std::to_string(session.server.node) +
                    "; run the event loop until some have ended, or raise the option backlog");
  }
  reached("erpc/backlog");
  session.backlog.push(request);
}

void Endpoint::start(ClientSession& session, const Request& request) {
  const auto index = static_cast<std::uint32_t>(std::countr_zero(session.free_slots));
  session.free_slots &= session.free_slots - 1;
  ClientSlot& slot = session.slots[index];
  slot.call = request;
  slot.request_number = after(slot.request_number);
  slot.sent = slot.received = slot.sent_once = 0;
  slot.request_packets = packets_of(request.request->size());
  slot.response_packets = 0;
  slot.in_wheel = 0;
  slot.retransmissions = 0;
  activate(slot);
  if (slot.request_packets == 1 && session.credits != 0 && session.rate.is_direct() &&
      session.in_wheel == 0) [[likely]] {
    --session.credits;
    slot.sent = 1;
    transmit_small(session, slot);
  } else {
    send_packets(slot);
  }
}

[[gnu::flatten]] void Endpoint::start_waiting(ClientSession& session) {
  while (session.free_slots != 0 && !session.backlog.empty() &&
         session.state == SessionState::kConnected) {
    start(session, session.backlog.pop());
  }
}

void Endpoint::finish(ClientSlot& slot, Outcome outcome) {
  if (has_sent_again_) [[unlikely]]
    drain_copies();
  ClientSession& session = *slot.session;
  deactivate(slot);
  session.free_slots |= 1ULL << slot.index;
  const Continuation done = slot.call.done;
  void* const context = slot.call.context;
  const std::uint64_t tag = slot.call.tag;
  // Older requests go first: the continuation may enqueue another.
  if (!session.backlog.empty()) start_waiting(session);
  if (outcome == Outcome::kOk) [[likely]]
    ++counters_.completed;
  else
    ++counters_.failed;
  done(context, tag, outcome);
}

// A continuation is never called inside enqueue_request.
void Endpoint::fail_later(const Request& request, Outcome outcome) {
  failed_.push_back({request, outcome});
  is_due_earlier_ = true;
  env_.notify(transport_.watch());
}

void Endpoint::call_failed() {
  // A continuation may enqueue a request that fails too: that one waits for the next turn.
  for (const Failed& failed : std::exchange(failed_, {})) {
    ++counters_.failed;
    failed.request.done(failed.request.context, failed.request.tag, failed.outcome);
  }
}

}  // namespace pyrdma::erpc
