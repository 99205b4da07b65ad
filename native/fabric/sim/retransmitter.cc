#include "fabric/sim/retransmitter.h"

#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void RetransmitState::reset() {
  first_epoch = ++epoch;
  progress();
}

void RetransmitState::fire(Picos now) {
  const bool runs_off = now == due;  // an error or a reset has cancelled any other timer event
  if (runs_off) cancel();
  if (runs_off && !qp.destroyed && qp.state == QpState::kReadyToSend && !qp.nic.dead())
    qp.nic.retransmitter.retry(qp, now);
  drop_reference(&qp);
}

void Retransmitter::lost(Message& message, Picos now, bool later_packets_tell) {
  QueuePairCore& qp = *message.initiator;
  RetransmitState& state = qp.retransmit;
  const std::uint64_t sequence = message.header.sequence;
  const bool response = message.is_response();
  // A negative acknowledgement may have begun a new epoch behind a request that awaits its answer.
  const bool awaited = response && sequence >= qp.completer.completed;
  if (qp.ordered() && (message.header.epoch == state.epoch || awaited)) {
    // A later packet makes the responder ask for the lost packet, after the backlog of the port.
    // Without a later packet, the initiator's timer finds the loss.
    const Network& network = nic_.fabric().network;
    const Picos pipelines = 2 * (nic_.times().rx_latency + nic_.times().tx_latency);
    const Picos wait = later_packets_tell ? network.port_backlog(nic_.node(), now) +
                                                network.round_trip() + pipelines
                                          : to_picos(Time{qp.options.timeout_us} * kMicrosecond);
    if (!state.pending()) state.after_timeout = !later_packets_tell;
    const std::uint64_t from =
        response ? qp.completer.completed : std::min(qp.responder.expected, sequence);
    qp.nic.retransmitter.schedule(qp, from, now + wait, false);
  }
  nic_.release(message);
}

void Retransmitter::ask_again(QueuePairCore& qp, Picos now) {
  if (qp.retransmit.pending() || qp.state != QpState::kReadyToSend) return;
  qp.retransmit.after_timeout = false;
  const Picos wait = nic_.fabric().network.round_trip() / 2 + nic_.times().rx_latency;
  schedule(qp, qp.responder.expected, now + wait, false);
}

void Retransmitter::response_missing(QueuePairCore& qp, std::uint32_t epoch, Picos now) {
  RetransmitState& state = qp.retransmit;
  const std::uint64_t completed = qp.completer.completed;
  // The requester has already sent the hole again when the present epoch began at or before it.
  if (epoch != state.epoch && completed >= state.epoch_from) return;
  if (!state.pending()) state.after_timeout = false;
  schedule(qp, completed, now + nic_.times().tx_message, false);
}

void Retransmitter::schedule(QueuePairCore& qp, std::uint64_t from, Picos when, bool rnr) {
  RetransmitState& state = qp.retransmit;
  if (state.pending()) {
    state.from = std::min(state.from, from);
    return;
  }
  state.due = when;
  state.is_rnr = rnr;
  state.from = from;
  ++qp.references;
  nic_.fabric().scheduler.schedule(state, when);
}

std::uint64_t Retransmitter::first_to_repeat(QueuePairCore& qp) {
  const RetransmitState& state = qp.retransmit;
  const std::uint64_t completed = qp.completer.completed;
  const bool timer = !state.is_rnr && state.after_timeout;  // knows only acknowledged requests
  const std::uint64_t from = timer ? completed : std::max(state.from, completed);
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
  if (state.is_rnr) {
    if (qp.options.rnr_retry == kInfiniteRetry || ++state.rnr_retries <= qp.options.rnr_retry)
      return false;
    if (nic_.completer.acknowledge_up_to(qp, from)) {
      qp.fail(from, Status::kRnrRetryExceeded);
      return true;
    }
    from = qp.completer.completed;
    return false;
  }
  // Deviation: negative acknowledgements do not count. A chunk stands for several packets, and some
  // of the packets would have got through.
  if (!state.after_timeout || ++state.retries <= qp.options.retry_count) return false;
  qp.fail(from, Status::kRetryExceeded);
  return true;
}

void Retransmitter::retry(QueuePairCore& qp, Picos now) {
  RequesterState& requester = qp.requester;
  std::uint64_t from = first_to_repeat(qp);
  const bool answered_meanwhile = from >= requester.next && requester.chunk_offset == 0;
  if (!answered_meanwhile) {
    if (gives_up(qp, from)) return;
    nic_.counters().retransmitted += requester.next - from;
    qp.retransmit.begin_epoch();
    qp.retransmit.epoch_from = from;
    qp.responder.repeat_message();
    requester.repeat_from(from);
  }
  nic_.requester.activate(qp, now);
}

}  // namespace pyrdma::fabric::sim
