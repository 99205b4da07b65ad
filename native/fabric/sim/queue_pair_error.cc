// A failed request gets an error completion. The NIC then flushes all requests behind the failed
// one.
#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {

Completion failed(const QueuePairCore& qp, std::uint64_t wr_id, Status status) {
  Completion completion;
  completion.wr_id = wr_id;
  completion.status = status;
  completion.qp_num = qp.number;
  completion.vendor_error = static_cast<std::uint32_t>(status);
  return completion;
}

}  // namespace

void QueuePairCore::flush_sends(Status cause) {
  while (completer.completed() < sends.posted()) {
    const std::uint64_t sequence = completer.completed();
    Completion flushed = failed(*this, sends[sequence].wr_id, Status::kFlushed);
    flushed.vendor_error = static_cast<std::uint32_t>(cause);
    completer.fail(*this, sequence, flushed);
  }
  requester.stop(sends.posted());
}

void QueuePairCore::flush_receives() {
  while (const auto wr_id = receiver.flush_one())
    receiver.completions().push(failed(*this, *wr_id, Status::kFlushed), nullptr, 0);
}

void QueuePairCore::fail_pending() {
  if (!destroyed && !awaits_answer()) fail(requester.next(), requester.pending_failure());
}

void QueuePairCore::fail(std::uint64_t sequence, Status status) {
  completer.fail(*this, sequence, failed(*this, sends[sequence].wr_id, status));
  if (ordered()) return enter_error();
  // On an unconnected queue pair, only the send queue stops (IBA 10.3.1, SQE state).
  flush_sends(status);
  state = QpState::kSendQueueError;
}

void QueuePairCore::enter_error() {
  if (state == QpState::kError || state == QpState::kReset) return;
  state = QpState::kError;
  retransmit.stop();
  flush_sends();
  flush_receives();
}

}  // namespace pyrdma::fabric::sim
