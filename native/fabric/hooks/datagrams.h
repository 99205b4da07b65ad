// Datagrams loses, delays, duplicates or corrupts the datagrams of one queue pair. It sends copies
// unsignaled, so that the user sees only the completions of its own requests. It reuses the memory
// of a copy once a request posted after it has completed.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "fabric/hooks/fault_gate.h"

namespace pyrdma::fabric::hooks {

/// The handle is shared, because a copy may leave after the user has destroyed its handle.
struct FaultyAddressHandle final : AddressHandle {
  explicit FaultyAddressHandle(std::shared_ptr<AddressHandle> handle) : inner(std::move(handle)) {}
  std::shared_ptr<AddressHandle> inner;
};

/// Returns the provider's handle in `request`.
inline const AddressHandle* unwrap(const AddressHandle* handle) {
  return handle == nullptr ? nullptr : static_cast<const FaultyAddressHandle*>(handle)->inner.get();
}

class Datagrams final : public LateSender {
 public:
  static constexpr std::uint32_t kCopies = 16;  // the send queue grows by as many entries

  Datagrams(HookState& hooks, ProtectionDomain& inner_domain, QueuePair& inner,
            const QpOptions& options, SendCount& count);
  ~Datagrams() override;
  /// Stops late copies. Must precede the destruction of the queue pair.
  void close();

  PostResult post(std::span<const WorkRequest> requests);
  void send_due(Time now) override;

 private:
  struct Copy {
    WorkRequest request;
    Sge sge;
    std::shared_ptr<AddressHandle> handle;
    Fault fault = Fault::delay;
    bool waits = false;      // still to send
    bool overtaken = false;  // a later datagram overtakes it
    Time due = 0;
    std::uint64_t after = 0;  // free once more requests than this number have completed
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
  std::mutex mutex_;  // polls of other threads send too
  std::vector<Copy> copies_;
  std::deque<Copy*> delayed_;  // sent in order, each after those before it
  std::vector<Copy*> reordered_;
  bool closed_ = false;
};

}  // namespace pyrdma::fabric::hooks
