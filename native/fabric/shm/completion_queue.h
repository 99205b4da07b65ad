// A completion queue. Its producers are the queue pairs of the node and of all peers.
#pragma once
#include "fabric/fabric.h"
#include "fabric/shm/device.h"

namespace pyrdma::fabric::shm {

class ShmCompletionQueue final : public CompletionQueue {
 public:
  ShmCompletionQueue(ShmDevice& device, std::uint32_t entries);
  ~ShmCompletionQueue() override;
  std::size_t poll(std::span<Completion> out) override;
  std::uint32_t entries() const override { return view_.capacity; }
  bool overrun() const override { return view_.ring->overrun.load(std::memory_order_acquire) != 0; }

  const CompletionView& view() const { return view_; }
  std::uint64_t offset() const { return offset_; }
  /// Drops the completions of a queue pair that is being reset or destroyed.
  void purge(std::uint32_t qp_num);

 private:
  ShmDevice& device_;
  std::uint64_t offset_ = 0;
  CompletionView view_;
  std::uint64_t consumed_ = 0;
};

}  // namespace pyrdma::fabric::shm
