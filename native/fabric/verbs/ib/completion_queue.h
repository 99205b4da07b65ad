// Completions, with the wr_ids that their tickets stand for.
#pragma once
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
  void mark_overrun() { overrun_.store(true, std::memory_order_release); }

 private:
  bool translate(const ibv_wc& from, Completion* to);

  VerbsDevice& device_;
  std::uint32_t entries_;
  std::atomic<bool> overrun_{false};
  ibv_cq* cq_;
};

}  // namespace pyrdma::fabric::verbs
