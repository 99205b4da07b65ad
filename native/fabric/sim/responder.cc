// From the port to the memory: a request passes the switch port and the responder engine, is
// checked as a NIC checks it, takes effect, and is answered.
#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

Nic::Passage Nic::pass_port(Message& message, Picos now, Picos engine_cost, Picos not_before) {
  Picos arrival = now - message.lead;
  Nic& sender =
      message.stage == Message::Stage::kResponseArrives ? *message.target : message.initiator->nic;
  if (&sender != this) {
    const bool no_buffer = faults_ != nullptr && faults_->no_buffer_until > now;
    const Network::PortResult port =
        fabric_.network.enter_port(node_, arrival, message.wire_bytes, no_buffer);
    if (port.dropped) {
      if (no_buffer) faults_->stream.reach(Fault::buffer_overflow);
      ++counters_.dropped;
      return {true, 0};
    }
    arrival += port.delay;
    if (port.ecn_marked) {
      message.ecn_marked = true;
      ++counters_.ecn_marked;
    }
    if (port.pause_sender > sender.paused_until_) {
      ++sender.counters_.paused;
      sender.paused_until_ = port.pause_sender;
    }
  }
  responder_free_ =
      std::max(responder_free_, arrival + times().rx_latency) + (engine_cost << slow_);
  return {false, std::max({now, responder_free_ + message.placement, not_before})};
}

void Nic::request_arrives(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (message.late_source && !gather_late(message)) return release(message);
  if (dead_) return lost(message, now, false);
  if (meddle(message, now)) return;
  Picos cost = message.engine;
  if (message.first && (cache.overflows() || faults_ != nullptr)) {
    if (const QueuePairCore* target = find_target(message)) cost += touch_state(*target);
    if (const Region* region = message.rkey != 0 ? regions.find(message.rkey) : nullptr)
      cost += touch_translation(*region, message.remote_addr);
  }
  const bool idle = qp.last_execution <= now;
  Passage passage = pass_port(message, now, cost, qp.last_execution);
  if (passage.dropped) trace("never gets", message, now);
  if (passage.dropped) return lost(message, now, qp.next > message.sequence + 1);
  if (idle && memory_.torn_read > 0 && message.opcode == Opcode::kRead)
    passage.due += sample_early(message, qp);
  qp.last_execution = passage.due;
  message.stage = Message::Stage::kRequestExecutes;
  if (passage.due > now)
    fabric_.scheduler.schedule(message, passage.due);
  else
    request_executes(message, now);
}

// The queue pair that a request reaches, or null.
QueuePairCore* Nic::find_target(const Message& message) const {
  QueuePairCore* target = queue_pairs.find(message.remote_qpn);
  const QueuePairCore& qp = *message.initiator;
  if (target == nullptr || target->options.transport != qp.options.transport || target->destroyed)
    return nullptr;
  if (target->state != QpState::kReadyToReceive && target->state != QpState::kReadyToSend &&
      target->state != QpState::kSendQueueError)
    return nullptr;
  switch (qp.options.transport) {
    case Transport::kRc:
    case Transport::kUc:
      return target->peer_nic == &qp.nic && target->peer_number == qp.number &&
                     target->peer_psn == qp.psn
                 ? target
                 : nullptr;
    case Transport::kUd:
      return target->options.qkey == message.remote_qkey ? target : nullptr;
    case Transport::kDc:
      return target->options.dc_target && target->options.qkey == message.remote_qkey ? target
                                                                                      : nullptr;
  }
  return nullptr;
}

// Unreliable connections drop what is old, as of before a reset, and messages with a hole
// (IBA 9.8.2). Datagrams follow nothing.
bool Nic::follows(QueuePairCore& qp, const Message& message) {
  if (qp.options.transport != Transport::kUc) return true;
  if (message.epoch < qp.first_epoch || message.sequence < qp.expected) return false;
  if (!message.first && (message.sequence != qp.expected || message.offset != qp.expected_offset))
    return false;
  qp.expected = message.sequence + message.last;
  qp.expected_offset = message.last ? 0 : message.offset + message.length;
  return true;
}

void Nic::request_executes(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (dead_) return lost(message, now, false);
  QueuePairCore* target = find_target(message);
  if (!qp.ordered()) {
    if (target != nullptr && follows(qp, message)) execute(message, *target, now, false);
    return release(message);
  }
  if (message.epoch != qp.epoch) return release(message);        // it was sent again
  if (message.sequence < qp.completed) return release(message);  // and has been answered
  if (target == nullptr) return lost(message, now, false);
  const bool duplicate = message.sequence < qp.expected;
  if (!duplicate && (message.sequence != qp.expected || message.offset != qp.expected_offset)) {
    // Behind a gap: a negative acknowledgement asks for what is missing. A chunk that came twice
    // is dropped.
    if (message.sequence != qp.expected || message.offset > qp.expected_offset) ask_again(qp, now);
    return release(message);
  }
  const Status status = execute(message, *target, now, duplicate);
  if (status == Status::kRnrRetryExceeded) {  // a retry is scheduled
    trace("is not ready for", message, now);
    return release(message);
  }
  message.status = status;
  trace("executes", message, now);
  if (status == Status::kSuccess && !duplicate) {
    qp.expected_offset = message.last ? 0 : message.offset + message.length;
    qp.expected += message.last;
    qp.retries = qp.rnr_retries = 0;
  }
  if (status != Status::kSuccess) {
    if (qp.options.transport == Transport::kRc) enter_error(*target);
    return answer(message, now - message.placement, now);
  }
  if (message.opcode == Opcode::kRead || message.opcode == Opcode::kCompareSwap ||
      message.opcode == Opcode::kFetchAdd)
    return answer(message, now, now);
  if (message.last && message.signaled) return answer(message, now - message.placement, now);
  // The acknowledgement of an unsignaled request is not followed, but it uses the link.
  if (message.last)
    link_free_ = std::max(link_free_, now - message.placement) +
                 fabric_.network.wire_time(fabric_.network.control().bytes);
  release(message);
}

const Region* Nic::accessible(const Message& message, const QueuePairCore& target,
                              std::uint64_t addr, std::uint64_t bytes, std::uint32_t access) const {
  const Region* region = regions.find(message.rkey);
  if (region == nullptr || region->domain != target.domain || (region->access & access) == 0 ||
      (target.options.access & access) == 0)
    return nullptr;
  if (addr < region->addr || bytes > region->size || addr - region->addr > region->size - bytes)
    return nullptr;
  return region;
}

Status Nic::execute(Message& message, QueuePairCore& target, Picos now, bool duplicate) {
  if (faults_ != nullptr && message.rkey != 0 && faults_->stream.fire(Fault::region_revoked)) {
    faults_->stream.reach(Fault::region_revoked);
    return Status::kRemoteAccess;
  }
  const std::uint64_t addr = message.remote_addr + message.offset;
  switch (message.opcode) {
    case Opcode::kWrite:
    case Opcode::kWriteImm: {
      if (duplicate) return Status::kSuccess;
      if (message.total > 0) {  // a write of nothing is not checked
        // The first packet tells the length of all (IBA 9.4.3), so nothing is placed of a bad one.
        const Region* region =
            accessible(message, target, message.remote_addr, message.total, kRemoteWrite);
        if (region == nullptr) return Status::kRemoteAccess;
        if (message.has_payload)
          place_write(message, *region, region->data + (addr - region->addr), now);
      }
      if (message.opcode == Opcode::kWriteImm && message.last) break;
      fabric_.scheduler.touch(env_.threads());
      return Status::kSuccess;
    }
    case Opcode::kRead: {
      if (message.total == 0) {  // touches no memory, but completes behind the writes before it
        if (memory_.mutation != MemoryMutation::kReadsDoNotDrain) drain(*message.initiator);
        return Status::kSuccess;
      }
      const Region* region =
          accessible(message, target, message.remote_addr, message.total, kRemoteRead);
      if (region == nullptr) return Status::kRemoteAccess;
      if (memory_.mutation != MemoryMutation::kReadsDoNotDrain) drain(*message.initiator);
      return execute_read(message, *region);
    }
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd: {
      if (message.remote_addr % 8 != 0) return Status::kRemoteInvalidRequest;
      const Region* region = accessible(message, target, message.remote_addr, 8, kRemoteAtomic);
      return region == nullptr ? Status::kRemoteAccess
                               : execute_atomic(message, *region, duplicate, now);
    }
    default:
      if (duplicate) return Status::kSuccess;
      break;
  }
  switch (deliver(message, target, message.opcode != Opcode::kWriteImm)) {
    case Delivery::kDone:
      return Status::kSuccess;
    case Delivery::kTooLong:
      return Status::kRemoteInvalidRequest;
    case Delivery::kBadBuffer:
      return Status::kRemoteOperation;
    case Delivery::kNotReady:
      break;
  }
  ++counters_.rnr_naks;
  QueuePairCore& qp = *message.initiator;
  if (qp.ordered())
    schedule_retry(qp, message.sequence,
                   now + to_picos(Time{target.options.rnr_timer_us} * kMicrosecond), true);
  return Status::kRnrRetryExceeded;
}

// Samples the target's memory; long reads do it chunk by chunk (continue_read).
Status Nic::execute_read(Message& message, const Region& region) {
  if (message.total > fabric_.network.chunk_bytes()) return Status::kSuccess;
  message.length = message.total;
  message.has_payload = !region.synthetic;
  message.reserve_payload();
  if (!message.has_payload) return Status::kSuccess;
  const std::byte* from = region.data + (message.remote_addr - region.addr);
  settle_atomics(from, message.length);
  if (message.sampled == 0) {
    std::memcpy(message.payload(), from, message.length);
    return Status::kSuccess;
  }
  Pieces(from, message.length, least_unit(message.length))
      .copy(message.payload(), from, ~message.sampled);
  if (std::memcmp(message.payload(), from, message.length) != 0)
    fabric_.count_reached(Fault::torn_read);
  return Status::kSuccess;
}

Status Nic::execute_atomic(Message& message, const Region& region, bool duplicate, Picos now) {
  QueuePairCore& qp = *message.initiator;
  drain(qp);
  SendEntry& entry = message.initiator->entry(message.sequence);
  message.length = 8;
  message.has_payload = true;
  if (!duplicate || !entry.executed) {
    std::byte* at = region.data + (message.remote_addr - region.addr);
    settle_atomics(at, 8);
    auto* word = reinterpret_cast<std::uint64_t*>(at);
    entry.swap = *word;
    entry.executed = true;
    std::uint64_t next = *word;
    if (message.opcode == Opcode::kFetchAdd)
      next += message.compare_add;
    else if (next == message.compare_add)
      next = message.swap;
    if (next != *word && draws(memory_.split_atomic)) {
      std::memcpy(message.small, &next, 8);
      qp.placements.add(*this, region, at, message.large, message.small, 8, now, true, true);
    } else {
      *word = next;
      touch();
    }
  }
  std::memcpy(message.payload(), &entry.swap, 8);
  return Status::kSuccess;
}

// A send, or the immediate of a write, meets a posted receive.
Nic::Delivery Nic::deliver(Message& message, QueuePairCore& target, bool with_data) {
  drain(*message.initiator);
  if (!target.receiving) {
    if (target.receives->empty()) return Delivery::kNotReady;
    if (faults_ != nullptr && message.first && faults_->stream.fire(Fault::rnr)) {
      faults_->stream.reach(Fault::rnr);
      return Delivery::kNotReady;
    }
    target.current_receive = target.receives->take(target.current_sges);
    target.receiving = true;
  }
  const std::uint32_t grh = target.options.transport == Transport::kUd ? kGrhBytes : 0;
  if (with_data) {
    std::uint64_t room = 0;
    for (const Sge& sge : target.current_sges) room += sge.length;
    if (room < std::uint64_t{message.total} + grh) {
      fail_receive(target, Status::kLocalLength);
      return Delivery::kTooLong;
    }
    std::uint64_t skip = std::uint64_t{message.offset} + grh;
    std::uint32_t copied = 0;
    for (const Sge& sge : target.current_sges) {
      if (copied == message.length && skip == 0) break;
      const bool before = skip >= sge.length;
      if (before && (grh == 0 || sge.length == 0)) {  // the header's own place is checked
        skip -= sge.length;
        continue;
      }
      const Region* region = regions.find(sge.lkey);
      if (region == nullptr || region->domain != target.receive_domain ||
          (region->access & kLocalWrite) == 0 || sge.addr < region->addr ||
          sge.length > region->size || sge.addr - region->addr > region->size - sge.length) {
        fail_receive(target, Status::kLocalProtection);
        return Delivery::kBadBuffer;
      }
      if (before) {
        skip -= sge.length;
        continue;
      }
      const auto bytes = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(sge.length - skip, message.length - copied));
      if (message.has_payload)
        std::memcpy(region->data + (sge.addr + skip - region->addr), message.payload() + copied,
                    bytes);
      copied += bytes;
      skip = 0;
    }
  }
  if (!message.last) return Delivery::kDone;
  target.receiving = false;
  Completion completion;
  completion.wr_id = target.current_receive.wr_id;
  completion.opcode = with_data ? Opcode::kReceive : Opcode::kReceiveWriteImm;
  completion.qp_num = target.number;
  completion.byte_count = message.total + grh;
  if (message.opcode == Opcode::kSendImm || message.opcode == Opcode::kWriteImm) {
    completion.flags |= kHasImmediate;
    completion.immediate = message.immediate;
  }
  if (grh != 0) {
    completion.flags |= kHasGrh;
    completion.source_qpn = message.source_number;
    completion.source_node = message.initiator->nic.node();
  }
  target.receive_queue->push(completion, nullptr, 0);
  return Delivery::kDone;
}

void Nic::fail_receive(QueuePairCore& target, Status status) {
  target.receiving = false;
  Completion completion;
  completion.wr_id = target.current_receive.wr_id;
  completion.status = status;
  completion.qp_num = target.number;
  target.receive_queue->push(completion, nullptr, 0);
  if (target.options.transport != Transport::kDc) enter_error(target);  // it serves others, too
}

// Sends the message back as a response: data, acknowledgement or error.
void Nic::respond(Message& message, Picos at, Picos now) {
  const NicTimes& t = times();
  Nic& initiator = message.initiator->nic;
  const bool data = message.status == Status::kSuccess && message.length > 0 &&
                    message.initiator->entry(message.sequence).needs_data_back();
  message.wire_bytes =
      data ? fabric_.network.connected(message.length).bytes : fabric_.network.control().bytes;
  counters_.wire_bytes += static_cast<std::uint64_t>(message.wire_bytes);
  message.placement = t.dma_write;
  message.engine = message.last ? t.rx_ack : 0;
  Picos arrival = at;
  if (&initiator != this) {
    link_free_ = std::max(link_free_, at) + fabric_.network.wire_time(message.wire_bytes);
    const std::uint64_t flow =
        (std::uint64_t{message.source_number} << 32) ^ initiator.node() ^ (1ULL << 31);
    arrival = fabric_.network.cross(node_, initiator.node(), link_free_, message.wire_bytes, flow);
  }
  message.meddled = false;
  message.target = this;
  message.owner = &initiator;
  message.stage = Message::Stage::kResponseArrives;
  Picos& due = message.initiator->last_response_due;
  due = std::max({now, due, arrival + t.rx_latency + message.engine + t.dma_write});
  message.lead = due - arrival;
  fabric_.scheduler.schedule(message, due);
}

// Answers leave in the order of the requests: behind a long read they wait for its last piece.
void Nic::answer(Message& message, Picos at, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (qp.long_read != nullptr) {
    message.next_free = nullptr;
    (qp.first_behind == nullptr ? qp.first_behind : qp.last_behind->next_free) = &message;
    qp.last_behind = &message;
    return;
  }
  const bool long_read = message.opcode == Opcode::kRead && message.status == Status::kSuccess &&
                         message.total > fabric_.network.chunk_bytes();
  if (!long_read) return respond(message, at, now);
  qp.long_read = &message;
  continue_read(message, now);
}

void Nic::end_long_read(QueuePairCore& qp, Picos now) {
  qp.long_read = nullptr;
  while (qp.first_behind != nullptr && qp.long_read == nullptr) {
    Message& next = *qp.first_behind;
    qp.first_behind = next.next_free;
    Nic& responder = *next.owner;
    if (responder.dead_)
      responder.lost(next, now, false);
    else
      responder.answer(next, now, now);
  }
}

void Nic::continue_read(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  if (dead_) {
    ++qp.references;  // until its other messages are gone, too
    lost(message, now, false);
    end_long_read(qp, now);
    return drop_reference(&qp);
  }
  const Region* region = regions.find(message.rkey);
  Message& piece = fabric_.pool.take(*this);
  piece.initiator = message.initiator;
  ++piece.initiator->references;
  piece.sequence = message.sequence;
  piece.epoch = message.epoch;
  piece.opcode = message.opcode;
  piece.signaled = message.signaled;
  piece.source_number = message.source_number;
  piece.total = message.total;
  piece.offset = message.offset;
  piece.length = std::min(message.total - message.offset, fabric_.network.chunk_bytes());
  piece.first = piece.offset == 0;
  piece.last = piece.offset + piece.length == message.total;
  piece.status = region == nullptr ? Status::kRemoteAccess : Status::kSuccess;
  piece.has_payload = region != nullptr && !region->synthetic;
  piece.meddled = piece.late_source = false;
  piece.sampled = 0;
  if (piece.has_payload) {
    piece.reserve_payload();
    settle_atomics(region->data + (message.remote_addr + piece.offset - region->addr),
                   piece.length);
    std::memcpy(piece.payload(), region->data + (message.remote_addr + piece.offset - region->addr),
                piece.length);
  }
  message.offset += piece.length;
  const bool done = piece.last || region == nullptr;
  respond(piece, now, now);
  if (done) {
    end_long_read(qp, now);
    return release(message);
  }
  message.stage = Message::Stage::kReadContinues;
  fabric_.scheduler.schedule(message, std::max(now, link_free_ - 1000 * kPicosPerNano));
}

}  // namespace pyrdma::fabric::sim
