// A completion queue replaces the tickets of completions by their wr_ids.
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
  /// Takes in all completions of the device for later polls, except the leftovers of queue pair
  /// `gone`; their places in a shared receive queue are given back. Drivers of NICs drop those
  /// leftovers with the queue pair, and the places with them. Any thread may call it.
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
  std::mutex mutex_;  // guards the member below
  std::deque<Completion> taken_in_;
  ibv_cq* cq_;
};

}  // namespace pyrdma::fabric::verbs
