#include "fabric/sim/responder.h"

#include <algorithm>
#include <utility>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void ResponderState::advance(const Message& message, std::uint64_t connection) {
  served_by_ = connection;
  expected_ = message.chunk.last
                  ? Position{message.header.sequence + 1, 0}
                  : Position{message.header.sequence, message.chunk.offset + message.chunk.length};
}

// ---- arrival ----

Picos Responder::engine_time(const Message& message) const {
  if (!message.chunk.first) return 0;
  const NicTimes& t = nic_.times();
  switch (message.header.opcode) {
    case Opcode::kWrite:
      return t.rx_write;
    case Opcode::kRead:
      return t.rx_read;
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      return t.rx_atomic;
    default:
      return t.rx_send;
  }
}

// Returns the time of the PCIe transfer behind the engine. The NIC's own memory needs less.
Picos Responder::placement_time(const Message& message) const {
  const NicTimes& t = nic_.times();
  const Picos placement = is_one_of(message.header.opcode, kReturning) ? t.dma_read : t.dma_write;
  return on_device(message) ? std::max<Picos>(0, placement - t.device_memory_saving) : placement;
}

bool Responder::on_device(const Message& message) const {
  if (nic_.fabric().device_regions == 0 || message.header.rkey == 0) return false;
  const Region* region = nic_.regions.find(message.header.rkey);
  return region != nullptr && region->on_device;
}

void Responder::expect(Message& message, Picos arrival) {
  message.placement = nic_.jitter.access(placement_time(message), message);
  Picos& due = message.initiator->responder.last_due_;
  due = std::max(due, arrival + nic_.times().rx_latency + nic_.times().rx_packet +
                          engine_time(message) + message.placement);
  message.lead = due - arrival;
  nic_.fabric().scheduler.schedule(message, due);
}

// Returns the time at which the NIC has the contexts that a request needs.
Picos Responder::load_contexts(const Message& message, Picos now, Picos at) const {
  if (!message.chunk.first || !nic_.contexts.may_miss()) return at;
  if (const QueuePairCore* target = find_target(message)) {
    const bool dc = target->options.transport == Transport::kDc;
    at = nic_.contexts.load(dc ? *message.initiator : *target, now, at);
  }
  const std::uint32_t rkey = message.header.rkey;
  if (const Region* region = rkey != 0 ? nic_.regions.find(rkey) : nullptr)
    at = nic_.contexts.load(*region, message.header.remote_addr, now, at);
  return at;
}

// Atomics at one address wait for each other; other atomics run beside them. A slot stands for the
// words of a region with the same low bits: an address itself differs from run to run.
Picos Responder::wait_for_address(const Message& message, Picos at) {
  const Region* region = nic_.regions.find(message.header.rkey);
  if (region == nullptr) return at;
  if (address_free_.empty()) address_free_.resize(kAddressSlots);
  const std::uint64_t word = (message.header.remote_addr - region->addr) / 8;
  Picos& free = address_free_[(word + region->serial * 509) % kAddressSlots];
  const Picos start = std::max(at, free);
  const NicTimes& t = nic_.times();
  free = start + ((region->on_device ? t.device_atomic_address : t.atomic_address) << nic_.slow());
  return start;
}

// Returns `at` plus the wait for other transfers over PCIe.
Picos Responder::cross_pcie(const Message& message, Picos now, Picos at) {
  const Network& network = nic_.fabric().network;
  const std::uint32_t length = message.chunk.length;
  const Picos arrival = network.wire_time(message.wire_bytes);
  switch (message.header.opcode) {
    case Opcode::kRead: {
      const std::uint32_t total = message.header.total;
      const bool in_chunks = total > network.chunk_bytes();
      return in_chunks || on_device(message)
                 ? at
                 : nic_.pcie.read(now, at, total, network.wire_time(total));
    }
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      at = wait_for_address(message, at);
      if (on_device(message)) return at;
      at = nic_.pcie.read(now, at, 8);
      nic_.pcie.write(now, at, 8);
      return at;
    case Opcode::kWrite:
      return on_device(message) ? at : nic_.pcie.write(now, at, length, arrival);
    default: {  // takes a posted receive and writes a completion
      const bool announces = message.header.opcode == Opcode::kWriteImm;
      if (announces ? message.chunk.last : message.chunk.first)
        at = fetch_receive(message, now, at);
      at = nic_.pcie.write(now, at, length, arrival);
      return message.chunk.last ? nic_.pcie.write(now, at, Pcie::kCompletionBytes) : at;
    }
  }
}

// Returns the time at which the NIC has the receive that a message takes.
Picos Responder::fetch_receive(const Message& message, Picos now, Picos at) {
  const QueuePairCore* target = find_target(message);
  if (target == nullptr) return at;
  const auto batch = static_cast<std::uint64_t>(nic_.fabric().profile.nic_receive_prefetch);
  auto [ready, is_first] = target->receiver.queue().fetch(now, at, nic_.times().dma_read, batch);
  if (is_first) {
    ++nic_.counters().receive_fetches;
    nic_.pcie.read(now, at, Pcie::kRequestBytes);
    ready = nic_.contexts.load_receive(now, ready);
  }
  nic_.counters().receive_waits += ready > at;
  return ready;
}

void Responder::request_arrives(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (message.late_source && !nic_.weak_memory.gather_late(message, now))
    return nic_.release(message);
  if (nic_.dead()) return nic_.retransmitter.lost(message, now);
  if (nic_.packet_faults.meddle(message, now)) return;
  Picos& last_execution = qp.responder.last_execution_;
  const bool idle = last_execution <= now;
  const Picos received = nic_.ingress.receive(message, now);
  if (received == kNever) {
    nic_.trace("never gets", message, now);
    return nic_.retransmitter.lost(message, now);
  }
  const Picos time = engine_time(message) << nic_.slow();
  const Picos served = engine_.serve(now, received, time);
  const Picos crossed = cross_pcie(message, now, load_contexts(message, now, served));
  Picos due = std::max({now, crossed + message.placement, last_execution});
  if (idle && message.header.opcode == Opcode::kRead) due += nic_.weak_memory.sample_early(message);
  last_execution = due;
  nic_.record(TimelineRow::kResponder, message, served - time, due);
  message.stage = Message::Stage::kRequestExecutes;
  if (due > now)
    nic_.fabric().scheduler.schedule(message, due);
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
      reached = target->peer_nic == &qp.nic && target->peer_number == qp.number &&
                target->peer_psn == qp.psn && qp.responder.is_served_by(target->connection);
      break;
    case Transport::kUc:  // the first packet of a message sets the packet sequence number again
      reached = target->peer_nic == &qp.nic && target->peer_number == qp.number;
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

// The place of a message alone says what becomes of it: what the responder expects is executed,
// what it has executed is a duplicate, and what comes too early shows a gap (IBA 9.7.5.1). So a
// message that was late, or that the requester has sent again without need, takes effect once.
void Responder::request_executes(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (nic_.dead()) return nic_.retransmitter.lost(message, now);
  if (!qp.ordered()) return execute_unordered(message, now);
  if (qp.retransmit.is_void(message.header.epoch)) return nic_.release(message);
  QueuePairCore* target = find_target(message);
  if (target == nullptr) return nic_.retransmitter.lost(message, now);
  ResponderState& state = qp.responder;
  if (message.position() != state.expected_) [[unlikely]]
    return execute_out_of_order(message, *target, now);
  state.asked_ = false;
  message.status = execute(message, *target, now);
  if (message.nak == Nak::kSilent) return nic_.retransmitter.lost(message, now);
  if (message.nak != Nak::kNone) {
    nic_.trace("is not ready for", message, now);
    nic_.mark(TimelineRow::kResponder, "receiver not ready", message, now);
    return nic_.responses.answer(message, now - message.placement, now);
  }
  nic_.trace("executes", message, now);
  if (message.status == Status::kSuccess)
    state.advance(message, target->connection);
  else if (qp.options.transport == Transport::kRc)
    target->enter_error();
  acknowledge(message, now);
}

// A gap gets one negative acknowledgement. The responder drops what follows until the expected
// message comes (IBA 9.7.5.2.8).
void Responder::execute_out_of_order(Message& message, QueuePairCore& target, Picos now) {
  ResponderState& state = message.initiator->responder;
  if (message.position() < state.expected_) return execute_duplicate(message, target, now);
  if (std::exchange(state.asked_, true)) return nic_.release(message);
  message.refuse(Nak::kSequence, state.expected_);
  nic_.responses.answer(message, now - message.placement, now);
}

// A duplicate read samples the memory again, and a duplicate atomic returns the value that it
// found. A duplicate write or send has no effect. The end of a message is acknowledged again.
void Responder::execute_duplicate(Message& message, QueuePairCore& target, Picos now) {
  if (!message.chunk.last || message.initiator->completer.has_completed(message.header.sequence))
    return nic_.release(message);
  if (message.header.opcode == Opcode::kRead) {
    nic_.responses.abandon(*message.initiator);
    message.initiator->responder.asked_ = false;
    message.status = nic_.remote_access.read(message, target);
  } else if (is_one_of(message.header.opcode, kAtomics)) {
    RemoteAccess::repeat_atomic(message);
  }
  if (message.status != Status::kSuccess && target.options.transport == Transport::kRc)
    target.enter_error();
  nic_.trace("executes again", message, now);
  nic_.responses.answer(message, now, now);
}

void Responder::execute_unordered(Message& message, Picos now) {
  QueuePairCore* target = find_target(message);
  if (target != nullptr && follows(*message.initiator, message)) execute(message, *target, now);
  nic_.release(message);
}

// An unreliable connection drops old messages, such as messages from before a reset. The connection
// also drops messages with a missing chunk (IBA 9.8.2). Datagrams have no order.
bool Responder::follows(QueuePairCore& qp, const Message& message) {
  if (qp.options.transport != Transport::kUc) return true;
  const Position expected = qp.responder.expected_;
  if (qp.retransmit.is_void(message.header.epoch) || message.position() < expected) return false;
  if (!message.chunk.first && message.position() != expected) return false;
  qp.responder.advance(message, 0);
  return true;
}

// The responder returns data, errors and the acknowledgements that the initiator waits for. Other
// acknowledgements only use the link.
void Responder::acknowledge(Message& message, Picos now) {
  const Picos executed = now - message.placement;  // the bytes had not crossed PCIe yet
  if (message.status == Status::kSuccess) {
    QueuePairCore& qp = *message.initiator;
    if (is_one_of(message.header.opcode, kReturning))
      return nic_.responses.answer(message, now, now);
    if (!message.chunk.last) {
      qp.acknowledged(now);
      return nic_.release(message);
    }
    // A DC initiator waits for all answers before it turns to another target.
    if (!message.header.signaled && qp.options.transport != Transport::kDc &&
        !qp.retransmit.lost_answer()) {
      nic_.transmitter.send_control(qp.nic, 1, now, executed);
      qp.nic.requester.serve_response(0, 0, nic_.times().rx_ack);
      qp.acknowledged(now);
      return nic_.release(message);
    }
  }
  nic_.responses.answer(message, executed, now);
}

// ---- effect ----

// A message that finds no receive becomes a negative acknowledgement.
Status Responder::execute(Message& message, QueuePairCore& target, Picos now) {
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
      return nic_.remote_access.atomic(message, target, now);
    case Opcode::kWrite:
    case Opcode::kWriteImm:
      return execute_write(message, target, now);
    default:
      return execute_send(message, target);
  }
}

// A write with an immediate takes a receive with its last byte.
Status Responder::execute_write(Message& message, QueuePairCore& target, Picos now) {
  const bool announces = message.header.opcode == Opcode::kWriteImm && message.chunk.last;
  const Status status = nic_.remote_access.write(message, target, now);
  if (status == Status::kSuccess && announces) return execute_send(message, target);
  if (status == Status::kSuccess) nic_.touch();
  return status;
}

Status Responder::execute_send(Message& message, QueuePairCore& target) {
  ResponderState& state = message.initiator->responder;
  switch (nic_.receiver.deliver(message, target)) {
    case Receiver::Delivery::kDone:
      return Status::kSuccess;
    case Receiver::Delivery::kTooLong:
      return Status::kRemoteInvalidRequest;
    case Receiver::Delivery::kOverrun:
      if (nic_.fabric().profile.nic_answers_overrun == 0) message.nak = Nak::kSilent;
      return Status::kRemoteOperation;
    case Receiver::Delivery::kBadBuffer:
      return Status::kRemoteOperation;
    case Receiver::Delivery::kGap:  // the whole message comes again
      state.expected_.offset = 0;
      state.asked_ = true;
      message.refuse(Nak::kSequence, state.expected_);
      return Status::kSuccess;
    case Receiver::Delivery::kNotReady:
      break;
  }
  ++nic_.counters().rnr_naks;
  state.asked_ = true;
  message.refuse(Nak::kNotReady, message.position(), target.options.rnr_timer_us);
  return Status::kSuccess;
}

}  // namespace pyrdma::fabric::sim
