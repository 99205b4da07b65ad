#include "fabric/sim/completer.h"

#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void CompleterState::fail(QueuePairCore& qp, std::uint64_t sequence, const Completion& error) {
  completions_.push(error, &qp, sequence + 1);
  completed_ = sequence + 1;
}

Picos Completer::engine_time(const Message& message) const {
  return message.chunk.last ? nic_.times().rx_ack : 0;
}

// Returns the time to fetch the request that says where the data go. The engine serves the
// responses in order, so later responses wait.
Picos Completer::request_time(const Message& message) {
  if (!message.chunk.last || message.nak != Nak::kNone ||
      !is_one_of(message.header.opcode, kReturning))
    return 0;
  if (nic_.requester.keeps(message.initiator->sends[message.header.sequence].number)) return 0;
  ++nic_.counters().request_misses;
  return nic_.times().request_miss;
}

void Completer::expect(Message& message, Picos arrival, Picos now) {
  message.placement = nic_.jitter.crossing(nic_.times().dma_write);
  Picos& due = message.initiator->completer.last_due_;
  due = std::max({now, due,
                  arrival + nic_.times().rx_latency + nic_.times().rx_packet +
                      engine_time(message) + message.placement});
  message.lead = due - arrival;
  nic_.fabric().scheduler.schedule(message, due);
}

void Completer::response_arrives(Message& message, Picos now) {
  if (nic_.dead()) return nic_.release(message);
  if (nic_.packet_faults.meddle(message, now)) return;
  QueuePairCore& qp = *message.initiator;
  Picos& last_completion = qp.completer.last_completion_;
  const Picos received = nic_.ingress.receive(message, now);
  if (received == kNever) return nic_.retransmitter.lost(message, now);
  const Picos time = (engine_time(message) + request_time(message)) << nic_.slow();
  const Picos served = nic_.requester.serve_response(now, received, time);
  Picos due = std::max(now, cross_pcie(message, now, served) + message.placement);
  NicFaults* faults = nic_.faults();
  if (faults != nullptr && faults->stream.fire(Fault::late_completion)) {
    faults->stream.reach(Fault::late_completion);
    due += to_picos(faults->stream.duration(Fault::late_completion));
  }
  due += nic_.weak_memory.land_early(message);
  due = std::max(due, last_completion);  // a late one holds back the next ones
  last_completion = due;
  qp.retransmit.hear(due);  // the NIC has the response
  nic_.record(TimelineRow::kCompleter, message, served - time, due);
  message.stage = Message::Stage::kResponseCompletes;
  if (due > now)
    nic_.fabric().scheduler.schedule(message, due);
  else
    response_completes(message, now);
}

// Returns the time at which the NIC has the context, plus the wait for other transfers over PCIe.
Picos Completer::cross_pcie(const Message& message, Picos now, Picos at) {
  const bool data_back = is_one_of(message.header.opcode, kReturning);
  if (message.chunk.last) at = nic_.contexts.load(*message.initiator, now, at);
  if (data_back)
    at = nic_.pcie.write(now, at, message.chunk.length,
                         nic_.fabric().network.wire_time(message.wire_bytes), nic_.times().scatter);
  if (message.header.signaled && message.chunk.last)
    at = nic_.pcie.write(now, at, Pcie::kCompletionBytes);
  return at;
}

// Completes the requests before `sequence` in order, up to the first that waits for data.
void Completer::acknowledge_up_to(QueuePairCore& qp, std::uint64_t sequence, Picos now) {
  std::uint64_t& completed = qp.completer.completed_;
  if (completed >= sequence || qp.sends[completed].needs_data_back()) return;
  qp.retransmit.progress(now);
  while (completed < sequence && !qp.sends[completed].needs_data_back()) {
    const std::uint64_t done = completed++;
    if (qp.sends[done].is_signaled() && !complete(qp, done)) return;
  }
  qp.requester.skip_to(completed);
}

// A response also acknowledges the requests before its own, up to the first that waits for data. If
// one waits for data, its response has been lost, and the requester sends that request again
// (IBA 9.9.2.4).
bool Completer::answers_in_order(const Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  CompleterState& state = qp.completer;
  const std::uint64_t sequence = message.header.sequence;
  acknowledge_up_to(qp, sequence, now);
  if (qp.state != QpState::kReadyToSend) return false;  // a completion queue has overrun
  const bool data_back = message.nak == Nak::kNone && qp.sends[sequence].needs_data_back();
  const std::uint32_t offset = message.chunk.offset;
  if (state.completed_ < sequence || (data_back && offset > state.response_offset_)) {
    nic_.retransmitter.response_missing(qp, now);
    return false;
  }
  if (!data_back) return true;
  if (offset < state.response_offset_) return false;  // the chunk arrived twice
  if (!message.chunk.last) {
    state.response_offset_ = offset + message.chunk.length;
    qp.retransmit.progress(now);
  }
  return true;
}

// Returns false when the completion is lost, which ends the queue pair.
bool Completer::complete(QueuePairCore& qp, std::uint64_t sequence) {
  const SendEntry& entry = qp.sends[sequence];
  Completion completion;
  completion.wr_id = entry.wr_id;
  completion.opcode = entry.opcode;
  completion.qp_num = qp.number;
  completion.byte_count = entry.needs_data_back() ? entry.length : 0;
  if (qp.completer.completions().push(completion, &qp, sequence + 1)) return true;
  qp.enter_error();
  return false;
}

// True when the requester no longer waits for this response.
bool Completer::is_void(const Nic& nic, const Message& message) {
  const QueuePairCore& qp = *message.initiator;
  return qp.destroyed || nic.dead() || qp.state != QpState::kReadyToSend ||
         qp.completer.has_completed(message.header.sequence) ||
         qp.retransmit.is_void(message.header.epoch);
}

// A negative acknowledgement acknowledges what is before the place that the responder expects.
void Completer::negative(const Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  nic_.trace(message.nak == Nak::kSequence ? "repeats" : "waits for", message, now);
  if (message.nak == Nak::kSequence)
    nic_.retransmitter.sequence_error(qp, message.position(), now);
  else
    nic_.retransmitter.receiver_not_ready(qp, message.position(), now,
                                          to_picos(Time{message.rnr_wait_us} * kMicrosecond));
}

void Completer::response_completes(Message& message, Picos now) {
  if (is_void(nic_, message) || !answers_in_order(message, now)) return nic_.release(message);
  if (message.nak != Nak::kNone) [[unlikely]] {
    negative(message, now);
    return nic_.release(message);
  }
  nic_.trace("completes", message, now);
  QueuePairCore& qp = *message.initiator;
  const std::uint64_t sequence = message.header.sequence;
  if (message.status != Status::kSuccess) {
    qp.fail(sequence, message.status);
    return nic_.release(message);
  }
  const bool data_back = qp.sends[sequence].needs_data_back();
  if (!data_back && !qp.placements.empty()) nic_.count_reached(Fault::late_placement);
  if (data_back && message.chunk.length > 0 && !nic_.dma.scatter(message, ~0ULL)) {
    qp.fail(sequence, Status::kLocalProtection);
    return nic_.release(message);
  }
  if (message.chunk.last) finish(qp, sequence, now);
  nic_.release(message);
}

// Completes the request and all requests before it.
void Completer::finish(QueuePairCore& qp, std::uint64_t sequence, Picos now) {
  CompleterState& state = qp.completer;
  RequesterState& requester = qp.requester;
  state.response_offset_ = 0;
  for (; state.completed_ <= sequence; ++state.completed_)
    requester.answered(state.completed_, qp.sends[state.completed_].needs_data_back());
  requester.skip_to(state.completed_);
  qp.retransmit.progress(now);
  const SendEntry& entry = qp.sends[sequence];
  if (entry.is_signaled() && !complete(qp, sequence)) return;
  if (!entry.is_signaled() && entry.needs_data_back()) nic_.touch();
  if (requester.pending_failure() != Status::kSuccess) qp.fail_pending();
  nic_.requester.unblock(qp);
}

// ---- unconnected transports ----

void Completer::complete_locally(QueuePairCore& qp, std::uint64_t sequence, Picos left) {
  if (!qp.sends[sequence].is_signaled()) {
    qp.completer.completed_ += qp.completer.completed_ == sequence;
    return;
  }
  Message& done = nic_.fabric().pool.take(nic_, qp);
  done.header.sequence = sequence;
  done.header.epoch = qp.retransmit.epoch();
  done.stage = Message::Stage::kLocalCompletes;
  nic_.fabric().scheduler.schedule(done, left + nic_.times().dma_write);
}

void Completer::local_completes(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (!is_void(nic_, message)) {
    if (!qp.placements.empty()) nic_.count_reached(Fault::late_placement);
    finish(qp, message.header.sequence, now);
  }
  nic_.release(message);
}

}  // namespace pyrdma::fabric::sim
