// Dynamically connected transport, by mlx5's interface. Initiators name a target with each request;
// targets take from a shared receive queue. The file is always compiled. It runs only on mlx5
// devices, and none has been available for tests (README.md).
#pragma once
#include <atomic>

#include "fabric/fabric.h"
#include "fabric/verbs/ib/device.h"
#include "fabric/verbs/ib/mlx5.h"

namespace pyrdma::fabric::verbs {

class VerbsCompletionQueue;
class VerbsSharedReceiveQueue;

/// Returns whether the device can make initiators. The function makes one, because no query tells
/// it.
bool has_dynamic_transport(ibv_context* context);

class VerbsDynamicQueuePair final : public QueuePair, public Silenceable {
 public:
  /// `shared` is for a target, null for an initiator. Throws Error.
  VerbsDynamicQueuePair(VerbsDevice& device, VerbsDomain& domain, VerbsCompletionQueue& send_queue,
                        VerbsCompletionQueue& receive_queue, const QpOptions& options,
                        VerbsSharedReceiveQueue* shared);
  ~VerbsDynamicQueuePair() override;

  Transport transport() const override { return Transport::kDc; }
  /// A target has its number once it is ready.
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
  std::uint32_t allowed_;                     // opcodes, one bit each; none for a target
  VerbsCompletionQueue& shared_completions_;  // completions of a target's receives
  Record& record_;
  ibv_qp* qp_ = nullptr;
  ibv_qp_ex* extended_ = nullptr;    // initiators only
  mlx5dv_qp_ex* dynamic_ = nullptr;  // initiators only
  std::atomic<QpState> state_{QpState::kReset};
  std::uint32_t sent_ = 0;
};

}  // namespace pyrdma::fabric::verbs
