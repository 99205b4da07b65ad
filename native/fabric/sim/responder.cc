#include "fabric/sim/responder.h"

#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void ResponderState::advance(const Message& message) {
  expected_ = message.header.sequence + message.chunk.last;
  expected_offset_ = message.chunk.last ? 0 : message.chunk.offset + message.chunk.length;
}

// ---- arrival ----

Picos Responder::engine_time(const Message& message) const {
  if (!message.chunk.first) return 0;
  const NicTimes& t = nic_.times();
  const Picos dc = message.initiator->options.transport == Transport::kDc ? t.dc_message : 0;
  switch (message.header.opcode) {
    case Opcode::kWrite:
      return t.rx_write + dc;
    case Opcode::kRead:
      return t.rx_read + dc;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      return t.rx_atomic + dc;
    default:
      return t.rx_send + dc;
  }
}

// Returns the time of the PCIe transfer behind the engine. The NIC's own memory needs less.
Picos Responder::placement_time(const Message& message) const {
  const NicTimes& t = nic_.times();
  const Picos placement = is_one_of(message.header.opcode, kReturning) ? t.dma_read : t.dma_write;
  if (message.header.rkey == 0 || nic_.fabric().device_regions == 0) return placement;
  const Region* region = nic_.regions.find(message.header.rkey);
  const bool on_device = region != nullptr && region->on_device;
  return on_device ? std::max<Picos>(0, placement - t.device_memory_saving) : placement;
}

void Responder::expect(Message& message, Picos arrival) {
  message.placement = nic_.jitter.access(placement_time(message), message);
  Picos& due = message.initiator->responder.last_due_;
  due = std::max(due, arrival + nic_.times().rx_latency + engine_time(message) + message.placement);
  message.lead = due - arrival;
  nic_.fabric().scheduler.schedule(message, due);
}

// Returns the engine time that cache misses of the NIC add to a request.
Picos Responder::context_cost(const Message& message) const {
  if (!message.chunk.first || !nic_.contexts.may_miss()) return 0;
  Picos cost = 0;
  if (const QueuePairCore* target = find_target(message)) cost += nic_.contexts.touch(*target);
  const std::uint32_t rkey = message.header.rkey;
  if (const Region* region = rkey != 0 ? nic_.regions.find(rkey) : nullptr)
    cost += nic_.contexts.touch(*region, message.header.remote_addr);
  return cost;
}

void Responder::request_arrives(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (message.late_source && !nic_.weak_memory.gather_late(message)) return nic_.release(message);
  if (nic_.dead()) return nic_.retransmitter.lost(message, now, false);
  if (nic_.packet_faults.meddle(message, now)) return;
  const Picos cost = engine_time(message) + context_cost(message);
  Picos& last_execution = qp.responder.last_execution_;
  const bool idle = last_execution <= now;
  Ingress::Passage passage = nic_.ingress.pass(message, now, cost, last_execution);
  if (passage.dropped) {
    nic_.trace("never gets", message, now);
    const bool later_packets_tell = qp.requester.has_sent_behind(message.header.sequence);
    return nic_.retransmitter.lost(message, now, later_packets_tell);
  }
  if (idle && message.header.opcode == Opcode::kRead)
    passage.due += nic_.weak_memory.sample_early(message);
  last_execution = passage.due;
  message.stage = Message::Stage::kRequestExecutes;
  if (passage.due > now)
    nic_.fabric().scheduler.schedule(message, passage.due);
  else
    request_executes(message, now);
}

QueuePairCore* Responder::find_target(const Message& message) const {
  const RequestHeader& header = message.header;
  QueuePairCore* target = nic_.queue_pairs.find(header.remote_qpn);
  const QueuePairCore& qp = *message.initiator;
  if (target == nullptr || target->options.transport != qp.options.transport || target->destroyed)
    return nullptr;
  if (target->state != QpState::kReadyToReceive && target->state != QpState::kReadyToSend &&
      target->state != QpState::kSendQueueError)
    return nullptr;
  bool reached = false;
  switch (qp.options.transport) {
    case Transport::kRc:
    case Transport::kUc:
      reached = target->peer_nic == &qp.nic && target->peer_number == qp.number &&
                target->peer_psn == qp.psn;
      break;
    case Transport::kUd:
      reached = target->options.qkey == header.remote_qkey;
      break;
    case Transport::kDc:
      reached = target->options.dc_target && target->options.qkey == header.remote_qkey;
      break;
  }
  return reached ? target : nullptr;
}

// ---- order ----

void Responder::request_executes(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (nic_.dead()) return nic_.retransmitter.lost(message, now, false);
  if (!qp.ordered()) return execute_unordered(message, now);
  const RequestHeader& header = message.header;
  // The requester has sent the request again, or the request is already complete.
  if (!qp.retransmit.is_current(header.epoch)) return nic_.release(message);
  if (qp.completer.has_completed(header.sequence)) return nic_.release(message);
  QueuePairCore* target = find_target(message);
  if (target == nullptr) return nic_.retransmitter.lost(message, now, false);
  const bool duplicate = header.sequence < qp.responder.expected_;
  if (!duplicate && !is_in_order(message, now)) return nic_.release(message);
  const Status status = execute(message, *target, now, duplicate);
  if (status == Status::kRnrRetryExceeded) {  // a retry is scheduled
    nic_.trace("is not ready for", message, now);
    return nic_.release(message);
  }
  message.status = status;
  nic_.trace("executes", message, now);
  if (status == Status::kSuccess && !duplicate) {
    qp.responder.advance(message);
    qp.retransmit.progress();
  }
  if (status != Status::kSuccess && qp.options.transport == Transport::kRc) target->enter_error();
  acknowledge(message, now);
}

void Responder::execute_unordered(Message& message, Picos now) {
  QueuePairCore* target = find_target(message);
  if (target != nullptr && follows(*message.initiator, message))
    execute(message, *target, now, false);
  nic_.release(message);
}

// An unreliable connection drops old messages, such as messages from before a reset. The connection
// also drops messages with a missing chunk (IBA 9.8.2). Datagrams have no order.
bool Responder::follows(QueuePairCore& qp, const Message& message) {
  if (qp.options.transport != Transport::kUc) return true;
  const RequestHeader& header = message.header;
  if (qp.retransmit.is_void(header.epoch) || header.sequence < qp.responder.expected_) return false;
  if (!message.chunk.first && !qp.responder.expects(header.sequence, message.chunk.offset))
    return false;
  qp.responder.advance(message);
  return true;
}

// The responder answers a gap with a negative acknowledgement, which asks for the missing chunk.
// The responder drops a duplicate chunk.
bool Responder::is_in_order(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  const std::uint64_t sequence = message.header.sequence;
  const std::uint32_t offset = message.chunk.offset;
  if (qp.responder.expects(sequence, offset)) return true;
  if (sequence != qp.responder.expected_ || offset > qp.responder.expected_offset_)
    nic_.retransmitter.ask_again(qp, now);
  return false;
}

// The responder returns data, errors and the acknowledgements that the initiator waits for. Other
// acknowledgements only use the link.
void Responder::acknowledge(Message& message, Picos now) {
  const Picos executed = now - message.placement;  // the bytes had not crossed PCIe yet
  if (message.status == Status::kSuccess) {
    if (is_one_of(message.header.opcode, kReturning))
      return nic_.responses.answer(message, now, now);
    if (!message.chunk.last) return nic_.release(message);
    if (!message.header.signaled) {
      nic_.transmitter.send_acknowledgement(executed);
      return nic_.release(message);
    }
  }
  nic_.responses.answer(message, executed, now);
}

// ---- effect ----

Status Responder::execute(Message& message, QueuePairCore& target, Picos now, bool duplicate) {
  NicFaults* faults = nic_.faults();
  if (faults != nullptr && message.header.rkey != 0 && faults->stream.fire(Fault::region_revoked)) {
    faults->stream.reach(Fault::region_revoked);
    return Status::kRemoteAccess;
  }
  switch (message.header.opcode) {
    case Opcode::kRead:
      return nic_.remote_access.read(message, target);
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      return nic_.remote_access.atomic(message, target, now, duplicate);
    case Opcode::kWrite:
    case Opcode::kWriteImm: {
      if (duplicate) return Status::kSuccess;
      const Status status = nic_.remote_access.write(message, target, now);
      const bool announces = message.header.opcode == Opcode::kWriteImm && message.chunk.last;
      if (status == Status::kSuccess && announces) return execute_send(message, target, now);
      if (status == Status::kSuccess) nic_.touch();
      return status;
    }
    default:
      return duplicate ? Status::kSuccess : execute_send(message, target, now);
  }
}

// Returns kRnrRetryExceeded when no receive was posted. A reliable initiator then sends again.
Status Responder::execute_send(Message& message, QueuePairCore& target, Picos now) {
  switch (nic_.receiver.deliver(message, target)) {
    case Receiver::Delivery::kDone:
      return Status::kSuccess;
    case Receiver::Delivery::kTooLong:
      return Status::kRemoteInvalidRequest;
    case Receiver::Delivery::kBadBuffer:
      return Status::kRemoteOperation;
    case Receiver::Delivery::kNotReady:
      break;
  }
  ++nic_.counters().rnr_naks;
  QueuePairCore& qp = *message.initiator;
  const Picos wait = to_picos(Time{target.options.rnr_timer_us} * kMicrosecond);
  if (qp.ordered()) nic_.retransmitter.schedule(qp, message.header.sequence, now + wait, true);
  return Status::kRnrRetryExceeded;
}

}  // namespace pyrdma::fabric::sim
