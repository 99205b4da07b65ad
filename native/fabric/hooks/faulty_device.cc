#include "fabric/hooks/faulty_device.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "fabric/hooks/faulty_queues.h"

namespace pyrdma::fabric {
namespace hooks {
namespace {

/// The device knows the region while it lives, so that Datagrams may copy its content.
class FaultyMemoryRegion final : public MemoryRegion {
 public:
  FaultyMemoryRegion(HookState& hooks, std::unique_ptr<MemoryRegion> inner)
      : hooks_(hooks), inner_(std::move(inner)) {
    data_ = inner_->data();
    size_ = inner_->size();
    addr_ = inner_->addr();
    file_ = inner_->file();
    lkey_ = inner_->lkey();
    rkey_ = inner_->rkey();
    node_ = inner_->node();
    hooks_.regions.add(*this);
  }
  ~FaultyMemoryRegion() override { hooks_.regions.remove(*this); }

 private:
  HookState& hooks_;
  std::unique_ptr<MemoryRegion> inner_;
};

class FaultyDevice final : public Device {
 public:
  FaultyDevice(Device& inner, Env& env, FaultStream& faults, FaultKinds kinds)
      : hooks_(inner, env, faults, kinds), copies_datagrams_(hooks_.copies_datagrams()) {}

  const Capabilities& capabilities() const override { return hooks_.inner.capabilities(); }
  const std::string& name() const override { return hooks_.inner.name(); }
  void open() override { hooks_.inner.open(); }
  Rendezvous& rendezvous() override { return hooks_.inner.rendezvous(); }

  std::unique_ptr<ProtectionDomain> create_protection_domain() override {
    press("a protection domain");
    return hooks_.inner.create_protection_domain();
  }
  std::unique_ptr<MemoryRegion> allocate(ProtectionDomain& pd, std::size_t bytes,
                                         std::uint32_t access) override {
    press("a region of ", bytes, " bytes");
    return known(hooks_.inner.allocate(pd, bytes, access));
  }
  std::unique_ptr<MemoryRegion> register_memory(ProtectionDomain& pd, void* data, std::size_t bytes,
                                                std::uint32_t access) override {
    press("a region of ", bytes, " bytes");
    return known(hooks_.inner.register_memory(pd, data, bytes, access));
  }
  std::unique_ptr<MemoryRegion> allocate_device_memory(ProtectionDomain& pd, std::size_t bytes,
                                                       std::uint32_t access) override {
    press("device memory of ", bytes, " bytes");
    return hooks_.inner.allocate_device_memory(pd, bytes, access);
  }
  std::unique_ptr<CompletionQueue> create_completion_queue(std::uint32_t entries) override {
    press("a completion queue of ", entries, " entries");
    return std::make_unique<FaultyCompletionQueue>(hooks_,
                                                   hooks_.inner.create_completion_queue(entries));
  }
  std::unique_ptr<SharedReceiveQueue> create_shared_receive_queue(ProtectionDomain& pd,
                                                                  std::uint32_t entries,
                                                                  std::uint32_t max_sges) override {
    press("a shared receive queue of ", entries, " entries");
    return hooks_.inner.create_shared_receive_queue(pd, entries, max_sges);
  }
  std::unique_ptr<QueuePair> create_queue_pair(ProtectionDomain& pd, CompletionQueue& send_queue,
                                               CompletionQueue& receive_queue,
                                               const QpOptions& options,
                                               SharedReceiveQueue* shared_receives) override {
    press("a queue pair of ", options.send_entries, " entries");
    QpOptions inner = options;
    if (copies_datagrams_ && options.transport == Transport::kUd) {
      const std::uint32_t most = std::max(capabilities().max_queue_entries, options.send_entries);
      inner.send_entries += std::min(Datagrams::kCopies, most - options.send_entries);
    }
    auto& sends = static_cast<FaultyCompletionQueue&>(send_queue);
    return std::make_unique<FaultyQueuePair>(
        hooks_,
        hooks_.inner.create_queue_pair(pd, sends.inner(),
                                       static_cast<FaultyCompletionQueue&>(receive_queue).inner(),
                                       inner, shared_receives),
        pd, sends, options);
  }
  std::unique_ptr<AddressHandle> create_address_handle(ProtectionDomain& pd, const QpAddress& peer,
                                                       const PathOptions& path) override {
    press("an address handle");
    std::unique_ptr<AddressHandle> handle = hooks_.inner.create_address_handle(pd, peer, path);
    if (!copies_datagrams_) return handle;
    return std::make_unique<FaultyAddressHandle>(std::move(handle));
  }

 private:
  void press(const char* what) {
    if (hooks_.gate.fire(Fault::memory_pressure)) refuse(what);
  }
  void press(const char* what, std::uint64_t count, const char* unit) {
    if (hooks_.gate.fire(Fault::memory_pressure))
      refuse(std::string(what).append(std::to_string(count)).append(unit));
  }
  [[noreturn, gnu::cold]] void refuse(const std::string& what) {
    hooks_.gate.reach(Fault::memory_pressure);
    throw Error(ErrorCode::kExhausted, name() + ": the fault memory_pressure left no memory for " +
                                           what + ": free an object and try again, or set " +
                                           "memory_pressure.rate to 0");
  }
  std::unique_ptr<MemoryRegion> known(std::unique_ptr<MemoryRegion> region) {
    if (!copies_datagrams_) return region;
    return std::make_unique<FaultyMemoryRegion>(hooks_, std::move(region));
  }

  HookState hooks_;
  bool copies_datagrams_;
};

}  // namespace
}  // namespace hooks

std::unique_ptr<Device> wrap_with_faults(Device& inner, Env& env, FaultStream& faults,
                                         FaultKinds kinds) {
  return std::make_unique<hooks::FaultyDevice>(inner, env, faults, kinds);
}

}  // namespace pyrdma::fabric
