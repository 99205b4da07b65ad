#include "fabric/sim/queue_pair.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/error.h"

namespace pyrdma::fabric::sim {

// ---- receives ----

PostResult ReceiveQueue::post(std::span<const ReceiveRequest> requests) {
  PostResult result;
  for (const ReceiveRequest& request : requests) {
    if (!has_pieces_up_to(max_sges_, request)) {
      result.error = PostError::kInvalid;
      break;
    }
    if (tail_ - head_ == limit_) {
      result.error = PostError::kQueueFull;
      break;
    }
    const std::size_t slot = tail_++ & (entries_.size() - 1);
    entries_[slot] = {request.wr_id, request.sge_count};
    std::copy_n(request.sges, request.sge_count, sges_.data() + slot * max_sges_);
    ++result.accepted;
  }
  return result;
}

ReceiveQueue::Entry ReceiveQueue::take(std::vector<Sge>& sges) {
  const std::size_t slot = head_++ & (entries_.size() - 1);
  const Entry entry = entries_[slot];
  sges.assign(&sges_[slot * max_sges_], &sges_[slot * max_sges_] + entry.sge_count);
  return entry;
}

PostResult SimSharedReceiveQueue::post_receive(std::span<const ReceiveRequest> requests) {
  const NicTimes& t = nic_.times();
  nic_.fabric().scheduler.charge(t.post + t.post_request * static_cast<Picos>(requests.size()));
  return queue.post(requests);
}

// ---- completion queue ----

SimCompletionQueue::SimCompletionQueue(Nic& nic, std::uint32_t entries)
    : nic_(nic), entries_(entries), ring_(std::bit_ceil(entries)) {}

SimCompletionQueue::~SimCompletionQueue() {
  for (; head_ != tail_; ++head_)
    if (QueuePairCore* qp = at(head_).qp) drop_reference(qp);
}

void SimCompletionQueue::push(const Completion& completion, QueuePairCore* qp,
                              std::uint64_t retire) {
  if (overrun_) return;
  NicFaults* faults = nic_.faults();
  const bool forced = faults != nullptr && faults->stream.fire(Fault::cq_overrun);
  if (forced || tail_ - head_ == entries_) {
    overrun_ = true;
    if (forced) faults->stream.reach(Fault::cq_overrun);
    return nic_.fabric().scheduler.notify(watch_);
  }
  at(tail_++) = {completion, qp, retire};
  if (qp != nullptr) ++qp->references;
  nic_.fabric().scheduler.notify(watch_);
  nic_.fabric().scheduler.touch(nic_.env().threads());
}

std::size_t SimCompletionQueue::poll(std::span<Completion> out) {
  std::size_t count = 0;
  if (!overrun_) {
    while (count < out.size() && head_ != tail_) {
      Entry& entry = at(head_++);
      out[count++] = entry.completion;
      if (entry.qp == nullptr) continue;
      entry.qp->retired = std::max(entry.qp->retired, entry.retire);
      drop_reference(std::exchange(entry.qp, nullptr));
    }
  }
  const NicTimes& t = nic_.times();
  nic_.fabric().scheduler.charge(count == 0 ? t.empty_poll : t.poll * static_cast<Picos>(count));
  return count;
}

void SimCompletionQueue::purge(const QueuePairCore& qp) {
  std::uint64_t kept = head_;
  for (std::uint64_t i = head_; i != tail_; ++i) {
    Entry& entry = at(i);
    if (entry.completion.qp_num == qp.number) {
      if (entry.qp != nullptr) drop_reference(std::exchange(entry.qp, nullptr));
      continue;
    }
    if (kept != i) at(kept) = std::exchange(entry, Entry{});
    ++kept;
  }
  tail_ = kept;
}

// ---- queue pair ----

QueuePairCore::QueuePairCore(Nic& owner, const QpOptions& wanted, std::uint32_t pd,
                             SimCompletionQueue& send, SimCompletionQueue& receive,
                             SimSharedReceiveQueue* shared)
    : nic(owner),
      options(wanted),
      domain(pd),
      send_queue(&send),
      receive_queue(&receive),
      entries(std::bit_ceil(wanted.send_entries)),
      sges(entries.size() * wanted.max_sges),
      inline_data(entries.size() * wanted.max_inline),
      receives(shared != nullptr ? &shared->queue : nullptr),
      receive_domain(shared != nullptr ? shared->domain : pd) {
  if (shared != nullptr) return;
  own_receives = std::make_unique<ReceiveQueue>(wanted.receive_entries, wanted.max_sges);
  receives = own_receives.get();
}

void drop_reference(QueuePairCore* core) {
  if (--core->references > 0 || !core->destroyed) return;
  core->nic.fabric().orphans.erase(core);
  delete core;
}

SimQueuePair::SimQueuePair(Nic& nic, std::unique_ptr<QueuePairCore> core)
    : nic_(nic),
      core_(std::move(core)),
      allowed_(core_->options.dc_target ? 0 : allowed_opcodes(core_->options.transport)) {}

SimQueuePair::~SimQueuePair() {
  QueuePairCore& qp = *core_;
  nic_.queue_pairs.erase(qp.number, &qp);
  nic_.cache.change_footprint(-nic_.fabric().profile.nic_qp_state_bytes);
  ++qp.references;  // keeps it while its completions go
  qp.send_queue->purge(qp);
  qp.receive_queue->purge(qp);
  qp.destroyed = true;
  nic_.fabric().orphans.insert(core_.release());
  drop_reference(&qp);
}

QpAddress SimQueuePair::address() const {
  QpAddress address;
  address.node = nic_.node();
  address.qp_num = core_->number;
  address.psn = core_->psn;
  address.qkey = core_->options.qkey;
  return address;
}

void SimQueuePair::enqueue(const WorkRequest& request) {
  QueuePairCore& qp = *core_;
  const std::uint64_t sequence = qp.posted++;
  SendEntry& entry = qp.entry(sequence);
  entry.wr_id = request.wr_id;
  entry.remote_addr = request.remote_addr;
  entry.compare_add = request.compare_add;
  entry.swap = request.swap;
  entry.rkey = request.rkey;
  const auto* handle = static_cast<const SimAddressHandle*>(request.address_handle);
  entry.target = handle != nullptr ? handle->target : nullptr;
  entry.remote_qpn = request.remote_qpn;
  entry.remote_qkey = request.remote_qkey;
  entry.immediate = request.immediate;
  entry.opcode = request.opcode;
  entry.flags = request.flags;
  entry.sge_count = static_cast<std::uint8_t>(request.sge_count);
  entry.executed = false;
  std::uint64_t length = 0;
  std::byte* inline_to = (request.flags & kInline) != 0 ? qp.entry_inline(sequence) : nullptr;
  Sge* sges = request.sge_count <= 1 ? &entry.first_sge
                                     : &qp.sges[qp.slot_of(sequence) * qp.options.max_sges];
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    sges[i] = request.sges[i];
    if (inline_to != nullptr && sges[i].length > 0)
      std::memcpy(inline_to + length, reinterpret_cast<const void*>(sges[i].addr), sges[i].length);
    length += sges[i].length;
  }
  entry.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kMaxMessage + 1));
}

PostResult SimQueuePair::post(std::span<const WorkRequest> requests) {
  QueuePairCore& qp = *core_;
  const NicTimes& t = nic_.times();
  SimScheduler& scheduler = nic_.fabric().scheduler;
  scheduler.charge(t.post + t.post_request * static_cast<Picos>(requests.size()));
  PostResult result;
  if (qp.state != QpState::kReadyToSend && qp.state != QpState::kError &&
      qp.state != QpState::kSendQueueError) {
    result.error = PostError::kInvalidState;
    return result;
  }
  const Picos visible = scheduler.clock() + t.doorbell;
  for (const WorkRequest& request : requests) {
    if (qp.posted - qp.retired >= qp.options.send_entries) {
      result.error = PostError::kQueueFull;
      break;
    }
    const auto* handle = static_cast<const SimAddressHandle*>(request.address_handle);
    if (!is_postable(request, qp.options, allowed_) ||
        (qp.is_addressed() && handle->domain != qp.domain)) {
      result.error = PostError::kInvalid;
      break;
    }
    enqueue(request);
    ++result.accepted;
    SendEntry& entry = qp.entry(qp.posted - 1);
    entry.visible_at = visible;
  }
  if (result.accepted == 0) return result;
  ++nic_.counters().doorbells;
  if (qp.state == QpState::kReadyToSend) {
    if (!qp.blocked) nic_.doorbell(qp, visible);
    return result;
  }
  for (qp.next = qp.posted; qp.completed < qp.posted; ++qp.completed) {
    Completion flushed;
    flushed.wr_id = qp.entry(qp.completed).wr_id;
    flushed.status = Status::kFlushed;
    flushed.qp_num = qp.number;
    flushed.vendor_error = static_cast<std::uint32_t>(Status::kFlushed);
    qp.send_queue->push(flushed, &qp, qp.completed + 1);
  }
  return result;
}

PostResult SimQueuePair::post_receive(std::span<const ReceiveRequest> requests) {
  QueuePairCore& qp = *core_;
  const NicTimes& t = nic_.times();
  nic_.fabric().scheduler.charge(t.post + t.post_request * static_cast<Picos>(requests.size()));
  if (!qp.own_receives) return {0, PostError::kInvalid};
  if (qp.state == QpState::kReset) return {0, PostError::kInvalidState};
  PostResult result = qp.own_receives->post(requests);
  while (qp.state == QpState::kError && !qp.own_receives->empty()) {
    Completion flushed;
    flushed.wr_id = qp.own_receives->take(qp.current_sges).wr_id;
    flushed.status = Status::kFlushed;
    flushed.qp_num = qp.number;
    flushed.vendor_error = static_cast<std::uint32_t>(Status::kFlushed);
    qp.receive_queue->push(flushed, nullptr, 0);
  }
  return result;
}

void SimQueuePair::modify(QpState next, const QpAddress* peer) {
  QueuePairCore& qp = *core_;
  const SimProfile& profile = nic_.fabric().profile;
  const bool connected =
      qp.options.transport == Transport::kRc || qp.options.transport == Transport::kUc;
  const QpState from = qp.state;
  check_transition(from, next);
  double total = profile.control_modify_init_us;
  if (next == QpState::kReadyToReceive) {
    total = profile.control_modify_rtr_us;
    if (connected) {
      if (peer == nullptr || peer->node >= nic_.fabric().nics.size())
        throw Error(ErrorCode::kInvalidArgument,
                    "connecting needs the peer's address, of a node below " +
                        std::to_string(nic_.fabric().nics.size()));
      qp.peer_nic = nic_.fabric().nics[peer->node].get();
      qp.peer_number = peer->qp_num;
      qp.peer_psn = peer->psn;
    }
  } else if (next == QpState::kReadyToSend) {
    total = profile.control_modify_rts_us;
  }
  nic_.control_path(total, profile.control_modify_nic_us);
  if (next == QpState::kError) return nic_.enter_error(qp);
  if (next == QpState::kReset) {
    nic_.enter_error(qp);
    qp.send_queue->purge(qp);
    qp.receive_queue->purge(qp);
    qp.first_epoch = ++qp.epoch;
    qp.retired = qp.completed = qp.next = qp.posted = qp.expected = qp.awaited = 0;
    qp.expected_offset = qp.response_offset = qp.outstanding_reads = qp.retries = qp.rnr_retries =
        0;
    qp.blocked = false;
    qp.dc_target = nullptr;
  }
  qp.state = next;
}

}  // namespace pyrdma::fabric::sim
