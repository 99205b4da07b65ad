// A shared receive queue: several queue pairs take receives from it.
#pragma once
#include <mutex>

#include "fabric/fabric.h"
#include "fabric/shm/device.h"
#include "fabric/shm/rings.h"

namespace pyrdma::fabric::shm {

class ShmSharedReceiveQueue final : public SharedReceiveQueue {
 public:
  ShmSharedReceiveQueue(ShmDevice& device, std::uint32_t pd, std::uint32_t entries,
                        std::uint32_t max_sges)
      : device_(device),
        pd_(pd),
        poster_(device.make_receive_ring(entries, max_sges, 1, true, &offset_), entries) {}
  ~ShmSharedReceiveQueue() override {
    device_.retire_receive_ring(poster_.view(), offset_, kLockTimeout);
  }
  PostResult post_receive(std::span<const ReceiveRequest> requests) override {
    const std::lock_guard lock(mutex_);  // several threads of this process may post
    return poster_.post(requests);
  }

  std::uint32_t pd() const { return pd_; }
  std::uint64_t offset() const { return offset_; }
  const ReceiveView& view() const { return poster_.view(); }

 private:
  ShmDevice& device_;
  std::uint32_t pd_;
  std::uint64_t offset_ = 0;
  std::mutex mutex_;
  ReceivePoster poster_;
};

}  // namespace pyrdma::fabric::shm
