#include "fabric/sim/retransmitter.h"

#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void RetransmitState::reset() {
  first_epoch_ = ++epoch_;
  progress();
}

void RetransmitState::fire(Picos now) {
  const bool runs_off = now == due_;  // an error or a reset has cancelled any other timer event
  if (runs_off) cancel();
  if (runs_off && !qp_.destroyed && qp_.state == QpState::kReadyToSend && !qp_.nic.dead())
    qp_.nic.retransmitter.retry(qp_, now);
  drop_reference(&qp_);
}

void Retransmitter::lost(Message& message, Picos now, bool later_packets_tell) {
  nic_.mark(TimelineRow::kReceiver, "lost", message, now);
  QueuePairCore& qp = *message.initiator;
  RetransmitState& state = qp.retransmit;
  const std::uint64_t sequence = message.header.sequence;
  const bool response = message.is_response();
  // A negative acknowledgement may have begun a new epoch behind a request that awaits its answer.
  const bool awaited = response && !qp.completer.has_completed(sequence);
  if (qp.ordered() && (message.header.epoch == state.epoch_ || awaited)) {
    // A later packet makes the responder ask for the lost packet, after the backlog of the port.
    // Without a later packet, the initiator's timer finds the loss.
    const Network& network = nic_.fabric().network;
    const Picos pipelines = 2 * (nic_.times().rx_latency + nic_.times().tx_latency);
    const Picos wait = later_packets_tell
                           ? network.port_backlog(nic_.port(), now) +
                                 2 * network.latency(nic_.port(), qp.nic.port()) + pipelines
                           : to_picos(Time{qp.options.timeout_us} * kMicrosecond);
    if (!state.pending()) state.after_timeout_ = !later_packets_tell;
    const std::uint64_t from =
        response ? qp.completer.completed() : std::min(qp.responder.expected(), sequence);
    qp.nic.retransmitter.schedule(qp, from, now + wait, false);
  }
  nic_.release(message);
}

void Retransmitter::ask_again(QueuePairCore& qp, Picos now) {
  if (qp.retransmit.pending() || qp.state != QpState::kReadyToSend) return;
  qp.retransmit.after_timeout_ = false;
  const Picos wait =
      nic_.fabric().network.latency(nic_.port(), qp.nic.port()) + nic_.times().rx_latency;
  schedule(qp, qp.responder.expected(), now + wait, false);
}

void Retransmitter::response_missing(QueuePairCore& qp, std::uint32_t epoch, Picos now) {
  RetransmitState& state = qp.retransmit;
  const std::uint64_t completed = qp.completer.completed();
  // The requester has already sent the hole again when the present epoch began at or before it.
  if (epoch != state.epoch_ && completed >= state.epoch_from_) return;
  if (!state.pending()) state.after_timeout_ = false;
  schedule(qp, completed, now + nic_.times().tx_message, false);
}

void Retransmitter::schedule(QueuePairCore& qp, std::uint64_t from, Picos when, bool rnr) {
  RetransmitState& state = qp.retransmit;
  if (state.pending()) {
    state.from_ = std::min(state.from_, from);
    return;
  }
  state.due_ = when;
  state.is_rnr_ = rnr;
  state.from_ = from;
  ++qp.references;
  nic_.fabric().scheduler.schedule(state, when);
}

std::uint64_t Retransmitter::first_to_repeat(QueuePairCore& qp) {
  const RetransmitState& state = qp.retransmit;
  const std::uint64_t completed = qp.completer.completed();
  const bool timer = !state.is_rnr_ && state.after_timeout_;  // knows only acknowledged requests
  const std::uint64_t from = timer ? completed : std::max(state.from_, completed);
  // A new epoch voids all messages of older epochs. So the new epoch begins with the first request
  // that still waits for data.
  for (std::uint64_t s = completed; s < from; ++s)
    if (qp.sends[s].needs_data_back()) return s;
  return from;
}

// Returns true when a request has failed. Request `from` fails with an RNR error once all earlier
// requests have been answered. Until then the connection goes back to the first unanswered request.
bool Retransmitter::gives_up(QueuePairCore& qp, std::uint64_t& from) {
  RetransmitState& state = qp.retransmit;
  if (state.is_rnr_) {
    if (qp.options.rnr_retry == kInfiniteRetry || ++state.rnr_retries_ <= qp.options.rnr_retry)
      return false;
    if (nic_.completer.acknowledge_up_to(qp, from)) {
      qp.fail(from, Status::kRnrRetryExceeded);
      return true;
    }
    from = qp.completer.completed();
    return false;
  }
  // Deviation: negative acknowledgements do not count. A chunk stands for several packets, and some
  // of the packets would have got through.
  if (!state.after_timeout_ || ++state.retries_ <= qp.options.retry_count) return false;
  qp.fail(from, Status::kRetryExceeded);
  return true;
}

void Retransmitter::retry(QueuePairCore& qp, Picos now) {
  std::uint64_t from = first_to_repeat(qp);
  if (qp.requester.has_sent(from)) {  // otherwise all requests have been answered meanwhile
    if (gives_up(qp, from)) return;
    qp.retransmit.begin_epoch();
    qp.retransmit.epoch_from_ = from;
    qp.responder.repeat_message();
    nic_.counters().retransmitted += qp.requester.repeat_from(from);
    if (Timeline* timeline = nic_.timeline()) [[unlikely]]
      timeline->mark(nic_.place(TimelineRow::kRequester), now,
                     {.name = "sends again", .request = {nic_.port(), qp.number, from}});
  }
  nic_.requester.activate(qp, now);
}

}  // namespace pyrdma::fabric::sim
