#include "fabric/sim/receive_queue.h"

#include <algorithm>

#include "fabric/post_rules.h"
#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

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

SimSharedReceiveQueue::~SimSharedReceiveQueue() { nic_.control.destroy_queue(); }

PostResult SimSharedReceiveQueue::post_receive(std::span<const ReceiveRequest> requests) {
  nic_.charge_post(requests.size());
  return queue.post(requests);
}

}  // namespace pyrdma::fabric::sim
