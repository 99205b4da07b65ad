// The event loop (eRPC, section 3.1). A turn takes packets, sends what is due, and runs the timers.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kScansPerTimeout = 10;
constexpr std::uint32_t kMostBatches = 16;  // of a turn

/// Marks the time of a turn, so that a second turn inside it or beside it is found out.
class TurnGuard {
 public:
  explicit TurnGuard(std::atomic<bool>& is_running) : is_running_(is_running) {
    if (is_running_.load(std::memory_order_relaxed)) [[unlikely]] {
      throw Error(ErrorCode::kInvalidArgument,
                  "the event loop of this endpoint runs already: a handler or continuation must "
                  "not run it, and each thread needs an endpoint of its own");
    }
    is_running_.store(true, std::memory_order_relaxed);
  }
  ~TurnGuard() { is_running_.store(false, std::memory_order_relaxed); }
  TurnGuard(const TurnGuard&) = delete;
  TurnGuard& operator=(const TurnGuard&) = delete;

 private:
  std::atomic<bool>& is_running_;
};

}  // namespace

Time Endpoint::stamp() {
  if (tx_stamp_ < 0 || !options_.batched_timestamps) tx_stamp_ = clock_ = env_.now();
  return tx_stamp_;
}

bool Endpoint::run_once() {
  const Scope step(env_, scope::turn);
  const std::uint64_t before = transport_.counters().received;
  turn();
  return transport_.counters().received != before;
}

// A batch that is full may not be the last one. A turn takes some more, but not all: packets may
// come without end, and timers and workers wait for the end of the turn.
bool Endpoint::turn() {
  const TurnGuard guard(is_running_);
  const std::uint64_t sent = transport_.counters().sent;
  transport_.heal_if_broken();
  tx_stamp_ = -1;
  bool is_idle = true;
  for (std::uint32_t batch = 0; batch < kMostBatches; ++batch) {
    const std::uint32_t got = transport_.receive([this](const Packet& packet) { receive(packet); });
    if (got == 0) break;
    is_idle = false;
    transport_.flush();
    tx_stamp_ = -1;
    if (got < options_.receive_batch) break;
  }
  bool is_busy = !is_idle;
  if (workers_ != nullptr && workers_->has_answers()) {
    is_busy = true;
    take_answers();
  }
  if (!failed_.empty()) [[unlikely]]
    call_failed();
  if (wheel_.size() != 0) {
    clock_ = env_.now();
    send_due(clock_);
  } else if (is_idle && !transport_.has_queued()) {
    clock_ = env_.now();
  }
  if (clock_ >= scan_at_ || clock_ >= manage_at_) [[unlikely]] {
    is_busy = true;
    run_timers(clock_);
  }
  transport_.flush();
  if (has_sent_again_) [[unlikely]]
    drain_copies();
  return is_busy || transport_.counters().sent != sent;
}

void Endpoint::receive(const Packet& packet) {
  clock_ = packet.arrived;
  switch (packet.header.kind()) {
    case PacketKind::kRequest:
      return receive_request(packet);
    case PacketKind::kResponse:
    case PacketKind::kCreditReturn:
      return receive_answer(packet);
    case PacketKind::kResponseRequest:
      return receive_response_request(packet);
    case PacketKind::kManagement:
      return take_management(packet);
  }
}

void Endpoint::run_timers(Time now) {
  if (now >= scan_at_) {
    Time least = options_.retransmission_timeout;
    if (options_.adaptive_timeout) least = std::min(least, options_.least_timeout);
    scan_at_ = now + std::max<Time>(least / kScansPerTimeout, 1);
    if (active_ != 0) scan_for_losses(now);
  }
  if (now >= manage_at_) manage(now);
}

Time Endpoint::next_due() const {
  Time due = std::min(manage_at_, scan_at_);
  if (wheel_.size() != 0) due = std::min(due, wheel_.next_due());
  if (!failed_.empty()) due = clock_;
  return due;
}

bool Endpoint::run_until(FunctionRef<bool()> done, Time deadline) {
  bool is_done = false;
  while (true) {
    Time due = deadline;
    {
      const Scope step(env_, scope::wait);
      is_due_earlier_ = false;
      due = std::min(next_due(), deadline);
    }
    const auto makes_turn = [&] {
      const Scope step(env_, scope::turn);
      const bool is_busy = turn();
      is_done = done();
      // An earlier timer ends the wait, which knows the old one. A busy turn ends it, too: in
      // virtual time the turns of a wait are as long as its last one, which must be an idle turn.
      return is_done || is_busy || is_due_earlier_;
    };
    env_.poll_until(makes_turn, due, &transport_.watch());
    if (is_done) return true;
    if (due == deadline && env_.now() >= deadline) return done();
  }
}

void Endpoint::take_answers() {
  for (const RequestHandle& handle : workers_->take_answers()) answer(handle);
}

std::string Endpoint::describe_pending() const {
  std::string text;
  for (const auto& session : clients_) {
    if (session == nullptr || session->state == SessionState::kFree) continue;
    std::uint32_t under_way = 0, repeated = 0;
    std::uint8_t type = 0;
    for (const ClientSlot& slot : session->slots) {
      if (!slot.is_active) continue;
      ++under_way;
      type = slot.call.type;
      repeated = std::max(repeated, slot.retransmissions);
    }
    const std::size_t waiting = session->backlog.size();
    if (under_way + waiting == 0) continue;
    if (!text.empty()) text += "; ";
    text += std::to_string(under_way) + " requests under way and " + std::to_string(waiting) +
            " waiting to endpoint " + std::to_string(session->server.endpoint) + " of node " +
            std::to_string(session->server.node);
    if (session->state == SessionState::kConnecting)
      text += std::string(", which is not connected: ") + why_silent(*session);
    else if (repeated != 0)
      text += ", sent again up to " + std::to_string(repeated) +
              " times: does the handler of type " + std::to_string(type) +
              " there call respond(), and does the endpoint run its event loop?";
  }
  return text.empty() ? "no request is pending" : text;
}

}  // namespace pyrdma::erpc
