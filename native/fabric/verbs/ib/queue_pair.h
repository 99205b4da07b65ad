// A queue pair of the device. queue_pair.cc: control path; post.cc: data path.
#pragma once
#include <atomic>

#include "fabric/fabric.h"
#include "fabric/verbs/ib/device.h"

namespace pyrdma::fabric::verbs {

class VerbsCompletionQueue;
class VerbsSharedReceiveQueue;

class VerbsQueuePair final : public QueuePair, public Silenceable {
 public:
  VerbsQueuePair(VerbsDevice& device, VerbsDomain& domain, VerbsCompletionQueue& send_queue,
                 VerbsCompletionQueue& receive_queue, const QpOptions& options,
                 VerbsSharedReceiveQueue* shared);
  ~VerbsQueuePair() override;

  Transport transport() const override { return options_.transport; }
  std::uint32_t qp_num() const override { return qp_->qp_num; }
  QpState state() const override;
  QpAddress address() const override;
  PostResult post(std::span<const WorkRequest> requests) override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override;
  void modify(QpState next, const QpAddress* peer) override;

  ibv_qp* qp() const { return qp_; }
  const QpOptions& options() const { return options_; }
  const std::string& device_name() const { return device_.name(); }
  /// Makes one transition with librdmacm's attributes, completed by those of the options.
  void take_step(QpState next, ibv_qp_attr& attributes, unsigned mask);
  void silence() override;

 private:
  bool has_wrong_length(const WorkRequest& request) const;
  void fill(const WorkRequest& request, ibv_send_wr* to);
  void change(ibv_qp_attr& attributes, unsigned mask);
  void save_shared_receives();
  std::uint8_t retry_count() const;
  std::uint8_t timeout() const;
  void to_init();
  void to_ready_to_receive(const QpAddress* peer);
  void to_ready_to_send();

  VerbsDevice& device_;
  std::shared_ptr<ibv_pd> domain_;
  QpOptions options_;
  std::uint32_t allowed_;  // opcodes, one bit each
  std::uint64_t longest_;  // bytes of a message; 0: the device checks lengths itself
  // Completions of a shared receive queue; null without one.
  VerbsCompletionQueue* shared_completions_;
  Record& record_;
  ibv_qp* qp_ = nullptr;
  std::uint32_t psn_ = 0;
  std::uint32_t reads_at_once_ = 0;  // reads and atomics in flight to the peer
  // The state as set; the device may have changed to an error state.
  std::atomic<QpState> state_{QpState::kReset};
  std::uint32_t sent_ = 0;      // position of the next send
  std::uint32_t received_ = 0;  // position of the next receive
};

}  // namespace pyrdma::fabric::verbs
