// Datagrams of one queue pair that are lost, late, doubled or spoilt. Copies are sent unsignaled,
// so that the user sees the completions of its own requests only; the memory of a copy is used
// again once a request posted after it has completed.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "fabric/hooks/fault_gate.h"

namespace pyrdma::fabric::hooks {

/// Shared, since a copy may leave when the user has destroyed its handle.
struct FaultyAddressHandle final : AddressHandle {
  explicit FaultyAddressHandle(std::shared_ptr<AddressHandle> handle) : inner(std::move(handle)) {}
  std::shared_ptr<AddressHandle> inner;
};

/// The provider's handle in `request`.
inline const AddressHandle* unwrap(const AddressHandle* handle) {
  return handle == nullptr ? nullptr : static_cast<const FaultyAddressHandle*>(handle)->inner.get();
}

class Datagrams final : public LateSender {
 public:
  static constexpr std::uint32_t kCopies = 16;  // also what the send queue is made longer by

  Datagrams(HookState& hooks, ProtectionDomain& inner_domain, QueuePair& inner,
            const QpOptions& options, SendCount& count);
  ~Datagrams() override;
  /// No late copy leaves any more. Before the queue pair is destroyed.
  void close();

  PostResult post(std::span<const WorkRequest> requests);
  void send_due(Time now) override;

 private:
  struct Copy {
    WorkRequest request;
    Sge sge;
    std::shared_ptr<AddressHandle> handle;
    Fault fault = Fault::delay;
    bool waits = false;      // to be sent
    bool overtaken = false;  // by a later datagram
    Time due = 0;
    std::uint64_t after = 0;  // free once more than these requests have completed
  };
  bool is_sound(const WorkRequest& request, std::uint64_t& bytes) const;
  Fault draw();
  Copy* copy(const WorkRequest& request, std::uint64_t bytes, Fault fault);
  void act(Copy& copy, Time due);
  bool send(Copy& copy);
  void send_due_locked(Time now);

  HookState& hooks_;
  QueuePair& inner_;
  QpOptions options_;
  std::uint32_t max_datagram_;
  SendCount& count_;
  std::unique_ptr<MemoryRegion> memory_;
  std::mutex mutex_;  // polls of other threads send, too
  std::vector<Copy> copies_;
  std::deque<Copy*> delayed_;  // and all behind them
  std::vector<Copy*> reordered_;
  bool closed_ = false;
};

}  // namespace pyrdma::fabric::hooks
