// Dynamically connected transport, by mlx5's interface: initiators, which name a target with each
// request, and targets, which take from a shared receive queue. Compiled always; it runs only on
// mlx5 devices, of which none has been at hand (README.md).
#pragma once
#include <atomic>

#include "fabric/fabric.h"
#include "fabric/verbs/ib/device.h"
#include "fabric/verbs/ib/mlx5.h"

namespace pyrdma::fabric::verbs {

class VerbsCompletionQueue;
class VerbsSharedReceiveQueue;

/// Whether the device makes initiators: one is made, since no query says so.
bool has_dynamic_transport(ibv_context* context);

class VerbsDynamicQueuePair final : public QueuePair, public Silenceable {
 public:
  /// `shared` for a target; null for an initiator. Throws Error.
  VerbsDynamicQueuePair(VerbsDevice& device, VerbsDomain& domain, VerbsCompletionQueue& send_queue,
                        VerbsCompletionQueue& receive_queue, const QpOptions& options,
                        VerbsSharedReceiveQueue* shared);
  ~VerbsDynamicQueuePair() override;

  Transport transport() const override { return Transport::kDc; }
  /// Of a target: its number once it is ready.
  std::uint32_t qp_num() const override { return qp_ != nullptr ? qp_->qp_num : 0; }
  QpState state() const override;
  QpAddress address() const override;
  PostResult post(std::span<const WorkRequest> requests) override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;
  void modify(QpState next, const QpAddress* peer) override;
  void silence() override;

 private:
  void start(const WorkRequest& request);
  void end_target();
  void change(ibv_qp_attr& attributes, unsigned mask);

  VerbsDevice& device_;
  std::shared_ptr<ibv_pd> domain_;
  QpOptions options_;
  std::uint32_t allowed_;                     // opcodes, a bit each; none of a target
  VerbsCompletionQueue& shared_completions_;  // of a target's receives
  Record& record_;
  ibv_qp* qp_ = nullptr;
  ibv_qp_ex* extended_ = nullptr;    // of an initiator
  mlx5dv_qp_ex* dynamic_ = nullptr;  // of an initiator
  std::atomic<QpState> state_{QpState::kReset};
  std::uint32_t sent_ = 0;
};

}  // namespace pyrdma::fabric::verbs
