#include "fabric/sim/retransmitter.h"

#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

namespace {
constexpr Time kLeastTimeout = 8192;  // ns: 4.096 us * 2 (IBA 11.6.2: local ACK timeout)
// The event keeps a destroyed queue pair alive, so it comes from time to time.
constexpr Picos kLook = 10'000'000'000;  // 10 ms
}  // namespace

// ---- the timer ----

Picos RetransmitState::timeout() const {
  return to_picos(std::max(Time{qp_.options.timeout_us} * kMicrosecond, kLeastTimeout));
}

void RetransmitState::reset() {
  stop();
  void_all();
  progress(0);
  hole_ = {~0ULL, 0};
}

void RetransmitState::schedule(Picos when) {
  due_ = when;
  ++qp_.references;
  qp_.nic.fabric().scheduler.schedule(*this, when);
}

void RetransmitState::schedule_timeout() {
  schedule(qp_.nic.fabric().scheduler.clock() + std::min(timeout(), kLook));
}

void RetransmitState::fire(Picos now) {
  const bool counts = now == due_;  // an error, a reset or a wait has replaced any other event
  if (counts) due_ = kNever;
  if (counts && !qp_.destroyed && qp_.state == QpState::kReadyToSend && !qp_.nic.dead())
    qp_.nic.retransmitter.expire(qp_, now);
  drop_reference(&qp_);
}

void Retransmitter::expire(QueuePairCore& qp, Picos now) {
  RetransmitState& state = qp.retransmit;
  if (state.waits_for_receiver_) {
    state.waits_for_receiver_ = false;
    state.heard_ = now;
    return go_back(qp, state.from_, now);
  }
  if (!qp.awaits_answer()) return;  // the next request that is sent runs the timer again
  const Position oldest = oldest_unanswered(qp);
  const Picos end =
      std::max(state.heard_, qp.sends[oldest.sequence].ready_at) + state.timeout() + state.slack_;
  if (now < end) return state.schedule(std::min(end, now + kLook));
  if (gives_up(qp, oldest.sequence)) return;
  // The time of a NIC's timer lies between once and four times the option (IBA 9.7.6.1.3). Two NICs
  // with exact timers would repeat the same collision until their retries are used up.
  state.slack_ = static_cast<Picos>(draws_.below(static_cast<std::uint64_t>(state.timeout() / 8)));
  state.heard_ = now;
  state.schedule_timeout();
  go_back(qp, oldest, now);
}

// The first bytes that the requester knows no acknowledgement of. The acknowledgements that the
// simulation does not follow are never lost: those of executed chunks that are not a message's
// last, and of requests without a completion.
Position Retransmitter::oldest_unanswered(const QueuePairCore& qp) {
  const Position expected = qp.responder.expected();
  const std::uint32_t chunk = qp.nic.fabric().network.chunk_bytes();
  for (std::uint64_t s = qp.completer.completed(); s < expected.sequence; ++s) {
    const SendEntry& entry = qp.sends[s];
    if (entry.needs_data_back()) return {s, 0};
    if (entry.is_signaled() || qp.is_answered(entry))
      return {s, entry.length == 0 ? 0 : (entry.length - 1) / chunk * chunk};
  }
  return expected;
}

bool Retransmitter::gives_up(QueuePairCore& qp, std::uint64_t sequence) {
  if (++qp.retransmit.retries_ <= qp.options.retry_count) return false;
  qp.fail(sequence, Status::kRetryExceeded);
  return true;
}

// ---- losses and negative acknowledgements ----

// Deviation: a repetition that the peer asks for counts only where none is allowed. A NIC counts
// it, but a chunk stands for several packets: those in front of the lost one would have been
// progress.
bool Retransmitter::may_not_repeat(QueuePairCore& qp, std::uint64_t sequence) {
  return qp.options.retry_count == 0 && gives_up(qp, sequence);
}

void Retransmitter::lost(Message& message, Picos now) {
  nic_.mark(TimelineRow::kReceiver, "lost", message, now);
  message.initiator->retransmit.lost_answer_ |= message.is_response();
  nic_.release(message);
}

void Retransmitter::sequence_error(QueuePairCore& qp, Position from, Picos now) {
  if (may_not_repeat(qp, from.sequence)) return;
  qp.retransmit.hear(now);
  go_back(qp, from, now);
}

// An answer that the receiver is not ready is a sign of life. With endless RNR retries, the losses
// of a long wait must not add up to an error.
void Retransmitter::receiver_not_ready(QueuePairCore& qp, Position from, Picos now, Picos wait) {
  RetransmitState& state = qp.retransmit;
  if (state.waits_for_receiver_) return;  // a packet came twice
  state.retries_ = 0;
  if (qp.options.rnr_retry != kInfiniteRetry && ++state.rnr_retries_ > qp.options.rnr_retry)
    return qp.fail(from.sequence, Status::kRnrRetryExceeded);
  state.waits_for_receiver_ = true;
  state.from_ = from;
  state.schedule(now + wait);
}

// The requester asks once for each missing response. When the repetition is lost, too, the timer
// finds the loss.
void Retransmitter::response_missing(QueuePairCore& qp, Picos now) {
  RetransmitState& state = qp.retransmit;
  const std::uint64_t missing = qp.completer.completed();
  const Position hole{missing, qp.completer.delivered(missing)};
  if (state.waits_for_receiver_ || hole == state.hole_) return;
  state.hole_ = hole;
  if (may_not_repeat(qp, missing)) return;
  state.hear(now);
  go_back(qp, {missing, 0}, now);
}

void Retransmitter::go_back(QueuePairCore& qp, Position from, Picos now) {
  from = std::max(from, Position{qp.completer.completed(), 0});
  if (from < qp.requester.position()) {
    nic_.counters().retransmitted += qp.requester.repeat_from(from);
    if (Timeline* timeline = nic_.timeline()) [[unlikely]]
      timeline->mark(nic_.place(TimelineRow::kRequester), now,
                     {.name = "sends again", .request = {nic_.port(), qp.number, from.sequence}});
  }
  nic_.requester.activate(qp, now);
}

}  // namespace pyrdma::fabric::sim
