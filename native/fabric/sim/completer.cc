// From the response to the completion: data is scattered, the send queue advances, polling threads
// wake.
#include <algorithm>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

void Message::fire(Picos now) { owner->on_message(*this, now); }

void Nic::on_message(Message& message, Picos now) {
  switch (message.stage) {
    case Message::Stage::kRequestArrives:
      return request_arrives(message, now);
    case Message::Stage::kRequestExecutes:
      return request_executes(message, now);
    case Message::Stage::kReadContinues:
      return continue_read(message, now);
    case Message::Stage::kResponseArrives:
      return response_arrives(message, now);
    case Message::Stage::kResponseCompletes:
    case Message::Stage::kLocalCompletes:
      return response_completes(message, now);
  }
}

void Nic::release(Message& message) {
  drop_reference(message.initiator);
  message.initiator = nullptr;
  fabric_.pool.give_back(message);
}

void Nic::response_arrives(Message& message, Picos now) {
  if (dead_) return release(message);
  if (meddle(message, now)) return;
  QueuePairCore& qp = *message.initiator;
  const Picos cost = message.engine + (message.last ? touch_state(qp) : 0);
  Passage passage = pass_port(message, now, cost, qp.last_completion);
  if (passage.dropped) return lost(message, now, false);
  if (faults_ != nullptr && faults_->stream.fire(Fault::late_completion)) {
    faults_->stream.reach(Fault::late_completion);
    passage.due += to_picos(faults_->stream.duration(Fault::late_completion));
  }
  if (memory_.late_placement > 0 && message.has_payload && draws(memory_.late_placement))
    passage.due += land_early(qp, message);
  qp.last_completion = passage.due;
  message.stage = Message::Stage::kResponseCompletes;
  if (passage.due > now)
    fabric_.scheduler.schedule(message, passage.due);
  else
    response_completes(message, now);
}

// Completes what needs no data, up to `sequence` or what does. Whether it came so far.
bool Nic::acknowledge_up_to(QueuePairCore& qp, std::uint64_t sequence) {
  while (qp.completed < sequence && !qp.entry(qp.completed).needs_data_back()) {
    if ((qp.entry(qp.completed).flags & kSignaled) != 0) complete(qp, qp.completed);
    ++qp.completed;
  }
  return qp.completed >= sequence;
}

// A response also acknowledges what was sent before it, unless that waits for data: then a response
// has been lost, and the request is sent again (IBA 9.9.2.4).
bool Nic::answers_in_order(QueuePairCore& qp, const Message& message, Picos now) {
  acknowledge_up_to(qp, message.sequence);
  if (qp.next < qp.completed) {  // it was about to be sent again
    qp.next = qp.completed;
    qp.chunk_offset = 0;
  }
  const bool data_back = qp.entry(message.sequence).needs_data_back();
  if (qp.completed < message.sequence || (data_back && message.offset > qp.response_offset)) {
    // Unless the present epoch has begun at or before the hole: then it has been sent again.
    if (message.epoch == qp.epoch || qp.completed < qp.epoch_from) {
      if (!qp.retry_pending()) qp.retry_after_timeout = false;
      schedule_retry(qp, qp.completed, now + times().tx_message, false);
    }
    return false;
  }
  if (!data_back) return true;
  if (message.offset < qp.response_offset) return false;  // it came twice
  if (!message.last) qp.response_offset = message.offset + message.length;
  return true;
}

void Nic::complete(QueuePairCore& qp, std::uint64_t sequence) {
  const SendEntry& entry = qp.entry(sequence);
  Completion completion;
  completion.wr_id = entry.wr_id;
  completion.opcode = entry.opcode;
  completion.qp_num = qp.number;
  completion.byte_count = entry.needs_data_back() ? entry.length : 0;
  qp.send_queue->push(completion, &qp, sequence + 1);
}

void Nic::response_completes(Message& message, Picos now) {
  QueuePairCore& qp = *message.initiator;
  const bool local = message.stage == Message::Stage::kLocalCompletes;
  if (qp.destroyed || dead_ || qp.state != QpState::kReadyToSend ||
      message.sequence < qp.completed || message.epoch < qp.first_epoch ||
      (local && message.epoch != qp.epoch))
    return release(message);
  const SendEntry& entry = qp.entry(message.sequence);
  const bool data_back = entry.needs_data_back();
  if (!local && !answers_in_order(qp, message, now)) return release(message);
  if (!local) trace("completes", message, now);
  if (message.status != Status::kSuccess) {
    fail(qp, message.sequence, message.status);
    return release(message);
  }
  if (!qp.placements.empty() && !data_back) fabric_.count_reached(Fault::late_placement);
  if (data_back && message.length > 0 && !scatter(qp, message.sequence, message)) {
    fail(qp, message.sequence, Status::kLocalProtection);
    return release(message);
  }
  if (!message.last && !local) return release(message);
  qp.response_offset = 0;
  for (; qp.completed <= message.sequence; ++qp.completed)
    if (qp.completed < qp.next) qp.outstanding_reads -= qp.entry(qp.completed).needs_data_back();
  if (qp.next < qp.completed) {  // it was about to be sent again
    qp.next = qp.completed;
    qp.chunk_offset = 0;
  }
  qp.retries = 0;
  if ((entry.flags & kSignaled) != 0) {
    complete(qp, message.sequence);
  } else if (data_back) {
    fabric_.scheduler.touch(env_.threads());
  }
  if (qp.pending_failure != Status::kSuccess) fail_pending(qp);
  if (qp.blocked && qp.state == QpState::kReadyToSend) {
    qp.blocked = false;
    activate(qp, fabric_.scheduler.clock());
  }
  release(message);
}

bool Nic::scatter(const QueuePairCore& qp, std::uint64_t sequence, Message& message,
                  std::uint64_t mask) {
  const SendEntry& entry = qp.entry(sequence);
  if (!message.has_payload) return true;
  std::uint64_t skip = message.offset;
  std::uint32_t copied = 0;
  const Sge* sges = qp.entry_sges(sequence);
  for (std::uint32_t i = 0; i < entry.sge_count && copied < message.length; ++i) {
    if (skip >= sges[i].length) {
      skip -= sges[i].length;
      continue;
    }
    const Region* region = regions.find(sges[i].lkey);
    if (region == nullptr) return false;  // deregistered since the request was checked
    const auto bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(sges[i].length - skip, message.length - copied));
    std::byte* to = region->data + (sges[i].addr + skip - region->addr);
    if (mask == ~0ULL)
      std::memcpy(to, message.payload() + copied, bytes);
    else if (bytes > 0)
      Pieces(to, bytes, least_unit(bytes)).copy(to, message.payload() + copied, mask);
    copied += bytes;
    skip = 0;
  }
  return true;
}

}  // namespace pyrdma::fabric::sim
