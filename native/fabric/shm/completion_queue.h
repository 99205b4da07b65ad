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
  /// Both drop the completions of a queue pair that is being reset or destroyed. `only_peer` is the
  /// node that alone delivers to it, or kNoNode.
  void purge(std::uint32_t qp_num, NodeId only_peer);
  void purge_sends(std::uint32_t qp_num) { sends_.purge(qp_num); }

 private:
  // Not in line: an empty poll, the most frequent, then saves no registers.
  [[gnu::noinline]] std::size_t poll_sends(std::span<Completion> out);
  [[gnu::noinline]] std::size_t poll_receives(std::span<Completion> out);
  [[gnu::cold, gnu::noinline]] void retry_waiting();
  [[gnu::noinline]] std::size_t poll_both(std::span<Completion> out);
  [[gnu::cold, gnu::noinline]] std::size_t poll_banks(std::span<Completion> out);
  [[gnu::always_inline]] std::size_t poll_bank(std::span<Completion> out,
                                               const CompletionView& bank, std::uint32_t number);
  bool has_receive(const CompletionView& bank, std::uint32_t number) const;
  void purge_bank(const CompletionView& bank, std::uint32_t qp_num, NodeId only_peer);

  ShmDevice& device_;
  std::uint64_t offset_ = 0;
  CompletionView view_;
  SendCompletions sends_;
  bool sends_first_ = false;
  std::uint64_t consumed_[kBanks] = {};
};

}  // namespace pyrdma::fabric::shm
