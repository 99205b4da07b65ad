// A completion queue. Peers produce the completions of receives, in a ring of the control segment,
// and the queue pairs of the node those of its own requests. Each kind has room for all entries.
#pragma once
#include "fabric/fabric.h"
#include "fabric/shm/device.h"
#include "fabric/shm/send_completions.h"

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
  /// Adds completions of the node's own requests. Returns false when the queue overruns or has
  /// overrun.
  bool push(const SendCompletion* completions, std::uint32_t count, std::uint32_t qp_num) {
    std::atomic<std::uint32_t>& overrun = view_.ring->overrun;
    if (relaxed(overrun) == 0 && sends_.push(completions, count, qp_num) == count) [[likely]]
      return true;
    overrun.store(1, std::memory_order_release);
    return false;
  }
  /// Drops the completions of a queue pair that is being reset or destroyed.
  void purge(std::uint32_t qp_num);

 private:
  // Not in line: an empty poll, the most frequent, then saves no registers.
  [[gnu::noinline]] std::size_t poll_sends(std::span<Completion> out);
  [[gnu::noinline]] std::size_t poll_receives(std::span<Completion> out);
  [[gnu::cold, gnu::noinline]] void retry_waiting();
  [[gnu::noinline]] std::size_t poll_both(std::span<Completion> out);
  bool has_receives() const;

  ShmDevice& device_;
  std::uint64_t offset_ = 0;
  CompletionView view_;
  SendCompletions sends_;
  bool sends_first_ = false;
  std::uint64_t consumed_ = 0;
};

}  // namespace pyrdma::fabric::shm
