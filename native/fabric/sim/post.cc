// The CPU posts requests and receives. A post costs CPU time. A post of requests ends with the
// doorbell.
#include <algorithm>
#include <cstring>

#include "fabric/sim/nic.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {

PostError SimQueuePair::why_not(const WorkRequest& request) const {
  const QueuePairCore& qp = *core_;
  if (qp.sends.full()) return PostError::kQueueFull;
  if (!is_postable(request, qp.options, allowed_)) return PostError::kInvalid;
  const auto* handle = static_cast<const SimAddressHandle*>(request.address_handle);
  if (qp.is_addressed() && handle->domain != qp.domain) return PostError::kInvalid;
  return PostError::kNone;
}

void SendQueue::append(const WorkRequest& request, std::uint32_t number, Picos visible_at) {
  const std::uint64_t slot = slot_of(posted_++);
  SendEntry& entry = entries_[slot];
  entry.wr_id = request.wr_id;
  entry.remote_addr = request.remote_addr;
  entry.ready_at = visible_at;
  entry.rkey = request.rkey;
  entry.immediate = request.immediate;
  entry.opcode = request.opcode;
  entry.flags = request.flags;
  entry.sge_count = static_cast<std::uint8_t>(request.sge_count);
  entry.number = number;
  if (entry.is_atomic()) operands_[slot] = {request.compare_add, request.swap};
  if (!destinations_.empty()) {
    const auto* handle = static_cast<const SimAddressHandle*>(request.address_handle);
    destinations_[slot] = {handle->target, request.remote_qpn, request.remote_qkey};
  }
  std::uint64_t length = 0;
  std::byte* inline_to = entry.is_inline() ? inline_data_.data() + slot * max_inline_ : nullptr;
  Sge* sges = entry.sge_count <= 1 ? &entry.first_sge : &sges_[slot * max_sges_];
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    sges[i] = request.sges[i];
    if (inline_to != nullptr && sges[i].length > 0)
      std::memcpy(inline_to + length, reinterpret_cast<const void*>(sges[i].addr), sges[i].length);
    length += sges[i].length;
  }
  entry.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kMaxMessage + 1));
}

// The doorbell carries a single short request. The NIC reads other requests from the ring. Returns
// the time at which the NIC has the requests.
Picos SimQueuePair::ring(std::span<const WorkRequest> requests) {
  const NicTimes& t = nic_.times();
  const Picos rung = nic_.fabric().scheduler.clock() + t.doorbell;
  const auto count = static_cast<std::uint32_t>(requests.size());
  const bool carried = count == 1 && (nic_.fabric().profile.nic_doorbell_carries_any != 0 ||
                                      (requests[0].flags & kInline) != 0);
  nic_.pcie.store(carried ? Pcie::kRequestBytes : Pcie::kDoorbellBytes);
  return carried ? rung : nic_.pcie.read(0, rung, count * Pcie::kRequestBytes) + t.dma_read;
}

// The requests of a post share its time.
void SimQueuePair::record(std::span<const WorkRequest> posted, std::size_t asked) const {
  Timeline& timeline = *nic_.timeline();
  const SimScheduler& scheduler = nic_.fabric().scheduler;
  const NicTimes& t = nic_.times();
  const auto count = static_cast<Picos>(asked);
  const SimThread& thread = nic_.fabric().scheduler.running();
  const Picos time = (t.post + t.post_request * count) << thread.slow_shift;
  Picos from = scheduler.clock() - time;
  const TimelinePlace place = timeline.place_of(thread);
  std::uint64_t sequence = core_->sends.posted() - posted.size();
  for (const WorkRequest& request : posted) {
    const Picos to = from + time / count;
    timeline.slice(place, from, to,
                   {.name = to_string(request.opcode),
                    .request = {nic_.port(), core_->number, sequence},
                    .bytes = core_->sends[sequence].length,
                    .part = TimelineWhat::Part::kPost});
    ++sequence;
    from = to;
  }
}

PostResult SimQueuePair::post(std::span<const WorkRequest> requests) {
  QueuePairCore& qp = *core_;
  nic_.charge_post(requests.size());
  PostResult result;
  if (qp.state != QpState::kReadyToSend && qp.state != QpState::kError &&
      qp.state != QpState::kSendQueueError) {
    result.error = PostError::kInvalidState;
    return result;
  }
  const Picos visible = ring(requests);
  for (const WorkRequest& request : requests) {
    result.error = why_not(request);
    if (result.error != PostError::kNone) break;
    qp.sends.append(request, nic_.requester.note_posted(), visible);
    ++result.accepted;
  }
  if (result.accepted == 0) return result;
  if (nic_.timeline() != nullptr) [[unlikely]]
    record(requests.first(result.accepted), requests.size());
  ++nic_.counters().doorbells;
  if (qp.state != QpState::kReadyToSend)
    qp.flush_sends();
  else if (!qp.requester.blocked())
    nic_.requester.doorbell(qp, visible);
  return result;
}

PostResult SimQueuePair::post_receive(std::span<const ReceiveRequest> requests) {
  QueuePairCore& qp = *core_;
  nic_.charge_post(requests.size());
  ReceiveQueue* receives = qp.receiver.own_queue();
  if (receives == nullptr) return {0, PostError::kInvalid};
  if (qp.state == QpState::kReset) return {0, PostError::kInvalidState};
  const PostResult result = receives->post(requests);
  if (qp.state == QpState::kError) qp.flush_receives();
  return result;
}

}  // namespace pyrdma::fabric::sim
