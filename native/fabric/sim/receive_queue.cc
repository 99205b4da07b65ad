#include "fabric/sim/receive_queue.h"

#include <algorithm>

#include "fabric/post_rules.h"
#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

PostResult ReceiveQueue::post(std::span<const ReceiveRequest> requests) {
  PostResult result;
  for (const ReceiveRequest& request : requests) {
    if (!has_pieces_up_to(max_sges_, request) || !has_strides(strides_, request)) {
      result.error = PostError::kInvalid;
      break;
    }
    if (tail_ - oldest() == limit_) {
      result.error = PostError::kQueueFull;
      break;
    }
    const std::size_t slot = tail_++ & (entries_.size() - 1);
    entries_[slot] = {request.wr_id, request.sge_count, 0};
    std::copy_n(request.sges, request.sge_count, sges_.data() + slot * max_sges_);
    ++result.accepted;
  }
  posted_on_nic_ += result.accepted;
  return result;
}

ReceiveQueue::Entry ReceiveQueue::take(std::vector<Sge>& sges) {
  const std::size_t slot = oldest() & (entries_.size() - 1);
  Entry entry = entries_[slot];
  sges.assign(&sges_[slot * max_sges_], &sges_[slot * max_sges_] + entry.sge_count);
  if (strides_ > 1) {
    Sge& part = sges.front();
    part.length >>= stride_bits_;
    entry.stride = static_cast<std::uint32_t>(head_ & (strides_ - 1));
    part.addr += std::uint64_t{entry.stride} * part.length;
  }
  advance(1);
  return entry;
}

ReceiveQueue::Fetched ReceiveQueue::fetch(Picos now, Picos at, Picos latency, std::uint64_t batch) {
  wanted_ = now >= settled_ ? head_ : std::max(wanted_, head_);
  const std::uint64_t receive = wanted_ >> stride_bits_;
  if (receive == tail_) return {at, false};  // no receive is left
  const bool is_first = (wanted_++ & (strides_ - 1)) == 0;
  if (receive >= held_) {  // the batch that the NIC holds is used up
    if (asked_ == held_) ask(at + latency, batch);
    held_ = asked_;
    held_from_ = asked_from_;
  }
  at = std::max(at, held_from_);
  if (asked_ == held_) ask(at + latency, batch);
  settled_ = at + latency;
  return {at, is_first};
}

SimSharedReceiveQueue::SimSharedReceiveQueue(Nic& nic, std::uint32_t pd, std::uint32_t entries,
                                             std::uint32_t max_sges)
    : domain(pd), queue(nic.contexts.posted_receives(), entries, max_sges), nic_(nic) {}

SimSharedReceiveQueue::~SimSharedReceiveQueue() { nic_.control.destroy_queue(); }

PostResult SimSharedReceiveQueue::post_receive(std::span<const ReceiveRequest> requests) {
  nic_.charge_post(requests.size());
  return queue.post(requests);
}

}  // namespace pyrdma::fabric::sim
