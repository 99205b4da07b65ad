// Completions, with the wr_ids that their tickets stand for.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>

#include "fabric/fabric.h"
#include "fabric/verbs/ib/device.h"

namespace pyrdma::fabric::verbs {

class VerbsCompletionQueue final : public CompletionQueue {
 public:
  VerbsCompletionQueue(VerbsDevice& device, std::uint32_t entries);
  ~VerbsCompletionQueue() override;
  std::size_t poll(std::span<Completion> out) override;
  std::uint32_t entries() const override { return entries_; }
  bool overrun() const override;

  ibv_cq* cq() const { return cq_; }
  /// Takes in all that the device has completed, for later polls, but for what queue pair `gone`
  /// has left in the queue, whose places in a shared receive queue are given back. Drivers of NICs
  /// drop that with the queue pair, and the places with it. Any thread.
  void take_in(std::uint32_t gone);
  void mark_overrun() { overrun_.store(true, std::memory_order_release); }

 private:
  std::size_t poll_device(std::span<Completion> out);
  std::size_t take_over(std::span<Completion> out);
  bool translate(const ibv_wc& from, Completion* to);

  VerbsDevice& device_;
  std::uint32_t entries_;
  std::atomic<bool> overrun_{false};
  std::atomic<bool> has_taken_in_{false};
  std::mutex mutex_;  // what follows
  std::deque<Completion> taken_in_;
  ibv_cq* cq_;
};

}  // namespace pyrdma::fabric::verbs
