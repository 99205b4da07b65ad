// The decorators of queue pairs and completion queues.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/hooks/datagrams.h"
#include "fabric/hooks/fault_gate.h"

namespace pyrdma::fabric::hooks {

class FaultyCompletionQueue final : public CompletionQueue {
 public:
  FaultyCompletionQueue(HookState& hooks, std::unique_ptr<CompletionQueue> inner);
  std::size_t poll(std::span<Completion> out) override;
  std::uint32_t entries() const override { return inner_->entries(); }
  bool overrun() const override { return inner_->overrun(); }
  Watch& watch() override { return inner_->watch(); }

  CompletionQueue& inner() { return *inner_; }
  /// Counts the completions of the requests of queue pair `qp_num`.
  void count(std::uint32_t qp_num, std::shared_ptr<SendCount> into);
  void forget(std::uint32_t qp_num);

 private:
  void count_all(std::span<const Completion> polled);
  HookState& hooks_;
  std::unique_ptr<CompletionQueue> inner_;
  std::atomic<bool> counts_{false};
  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<SendCount>> counted_;
};

class FaultyQueuePair final : public QueuePair {
 public:
  FaultyQueuePair(HookState& hooks, std::unique_ptr<QueuePair> inner, ProtectionDomain& domain,
                  FaultyCompletionQueue& send_queue, const QpOptions& options);
  ~FaultyQueuePair() override;
  Transport transport() const override { return inner_->transport(); }
  std::uint32_t qp_num() const override { return inner_->qp_num(); }
  QpState state() const override { return inner_->state(); }
  QpAddress address() const override { return inner_->address(); }
  PostResult post(std::span<const WorkRequest> requests) override;
  PostResult post_receive(std::span<const ReceiveRequest> requests) override {
    return inner_->post_receive(requests);
  }
  void modify(QpState next, const QpAddress* peer) override;
  bool is_quiet() const override { return inner_->is_quiet(); }

 private:
  PostResult carry(std::span<const WorkRequest> requests);
  PostResult post_counted(std::span<const WorkRequest> requests);
  std::span<const WorkRequest> malform_some(std::span<const WorkRequest> requests);
  bool malform(WorkRequest& request);
  bool has_pending() const;

  HookState& hooks_;
  std::unique_ptr<QueuePair> inner_;
  FaultyCompletionQueue& send_queue_;
  std::shared_ptr<SendCount> count_;      // null when no fault needs it
  std::unique_ptr<Datagrams> datagrams_;  // UD with datagram faults only
  bool has_handles_;                      // requests carry the decorators' address handles
  // The members below belong to the running post.
  std::vector<WorkRequest> requests_;
  std::vector<Sge> sges_;
  std::vector<std::size_t> malformed_;
};

}  // namespace pyrdma::fabric::hooks
