// What a reliable connection does when something does not get through: go-back-N from what the
// responder expects, after a negative acknowledgement or a timeout; waiting for a receiver that is
// not ready; giving up with an error completion and flushing the rest.
#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void Nic::lost(Message& message, Picos now, bool later_packets_tell) {
  QueuePairCore& qp = *message.initiator;
  const bool response = message.stage == Message::Stage::kResponseArrives;
  // A negative acknowledgement may have begun a new epoch behind a request whose answer is awaited.
  const bool awaited = response && message.sequence >= qp.completed;
  if (qp.ordered() && (message.epoch == qp.epoch || awaited)) {
    // A later packet, behind what the port still holds, makes the responder ask for the lost one;
    // else the initiator's timer must notice.
    const Picos wait = later_packets_tell ? fabric_.network.port_backlog(node_, now) +
                                                fabric_.network.round_trip() +
                                                2 * (times().rx_latency + times().tx_latency)
                                          : to_picos(Time{qp.options.timeout_us} * kMicrosecond);
    if (!qp.retry_pending()) qp.retry_after_timeout = !later_packets_tell;
    qp.nic.schedule_retry(qp, response ? qp.completed : std::min(qp.expected, message.sequence),
                          now + wait, false);
  }
  release(message);
}

void Nic::ask_again(QueuePairCore& qp, Picos now) {
  if (qp.retry_pending() || qp.state != QpState::kReadyToSend) return;
  qp.retry_after_timeout = false;
  schedule_retry(qp, qp.expected, now + fabric_.network.round_trip() / 2 + times().rx_latency,
                 false);
}

void Nic::schedule_retry(QueuePairCore& qp, std::uint64_t from, Picos when, bool rnr) {
  if (qp.retry_pending()) {
    qp.retry_from = std::min(qp.retry_from, from);
    return;
  }
  qp.retry_at = when;
  qp.retry_is_rnr = rnr;
  qp.retry_from = from;
  ++qp.references;
  fabric_.scheduler.schedule(qp, when);
}

void QueuePairCore::fire(Picos now) {
  const bool due = now == retry_at;  // else an error or a reset has made it void
  if (due) retry_at = kNever;
  if (due && !destroyed && state == QpState::kReadyToSend && !nic.dead()) nic.retry(*this, now);
  drop_reference(this);
}

void Nic::retry(QueuePairCore& qp, Picos now) {
  // A timer knows only what has been acknowledged.
  const bool timer = !qp.retry_is_rnr && qp.retry_after_timeout;
  std::uint64_t from = timer ? qp.completed : std::max(qp.retry_from, qp.completed);
  // A new epoch stops what is under way of the old ones, so that it begins with the first request
  // that still waits for data.
  for (std::uint64_t s = qp.completed; s < from; ++s)
    if (qp.entry(s).needs_data_back()) from = s;
  if (from >= qp.next && qp.chunk_offset == 0) return activate(qp, now);  // answered meanwhile
  if (qp.retry_is_rnr) {
    if (qp.options.rnr_retry != kInfiniteRetry && ++qp.rnr_retries > qp.options.rnr_retry) {
      // It fails when all before it have been answered; until then it goes back to the first.
      if (qp.completed >= from || acknowledge_up_to(qp, from))
        return fail(qp, from, Status::kRnrRetryExceeded);
      from = qp.completed;
    }
  } else if (qp.retry_after_timeout && ++qp.retries > qp.options.retry_count) {
    // Deviation: negative acknowledgements do not count, since a chunk stands for several packets,
    // of which some would have got through.
    return fail(qp, from, Status::kRetryExceeded);
  }
  counters_.retransmitted += qp.next - from;
  ++qp.epoch;
  qp.epoch_from = from;
  qp.expected_offset = 0;
  qp.next = from;
  qp.chunk_offset = 0;
  qp.pending_failure = Status::kSuccess;  // it is met again
  qp.outstanding_reads = 0;               // nothing before `from` waits for data, see above
  qp.blocked = false;
  activate(qp, now);
}

// A request that cannot be sent fails once all before it have been answered.
void Nic::fail_pending(QueuePairCore& qp) {
  if (qp.completed >= qp.awaited) fail(qp, qp.next, qp.pending_failure);
}

void Nic::fail(QueuePairCore& qp, std::uint64_t sequence, Status status) {
  Completion completion;
  completion.wr_id = qp.entry(sequence).wr_id;
  completion.status = status;
  completion.qp_num = qp.number;
  completion.vendor_error = static_cast<std::uint32_t>(status);
  qp.send_queue->push(completion, &qp, sequence + 1);
  qp.completed = sequence + 1;
  if (qp.ordered()) return enter_error(qp);
  // Unconnected: only the send queue stops (IBA 10.3.1, SQE state).
  for (; qp.completed < qp.posted; ++qp.completed) {
    completion.wr_id = qp.entry(qp.completed).wr_id;
    completion.status = Status::kFlushed;
    qp.send_queue->push(completion, &qp, qp.completed + 1);
  }
  qp.next = qp.posted;
  qp.pending_failure = Status::kSuccess;
  qp.state = QpState::kSendQueueError;
}

void Nic::enter_error(QueuePairCore& qp) {
  if (qp.state == QpState::kError || qp.state == QpState::kReset) return;
  qp.state = QpState::kError;
  qp.retry_at = kNever;
  ++qp.epoch;
  Completion completion;
  completion.status = Status::kFlushed;
  completion.qp_num = qp.number;
  completion.vendor_error = static_cast<std::uint32_t>(Status::kFlushed);
  for (; qp.completed < qp.posted; ++qp.completed) {
    completion.wr_id = qp.entry(qp.completed).wr_id;
    qp.send_queue->push(completion, &qp, qp.completed + 1);
  }
  qp.next = qp.posted;
  qp.chunk_offset = 0;
  qp.pending_failure = Status::kSuccess;
  if (qp.receiving) {
    qp.receiving = false;
    completion.wr_id = qp.current_receive.wr_id;
    qp.receive_queue->push(completion, nullptr, 0);
  }
  while (qp.own_receives && !qp.own_receives->empty()) {
    completion.wr_id = qp.own_receives->take(qp.current_sges).wr_id;
    qp.receive_queue->push(completion, nullptr, 0);
  }
}

}  // namespace pyrdma::fabric::sim
