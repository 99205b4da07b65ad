// The simulated device of one node, and the set-up exchange between nodes.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "fabric/fabric.h"
#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

/// Published values of the whole cluster, by key.
struct RendezvousTable {
  std::map<std::string, std::vector<std::byte>, std::less<>> values;
  Watch published;
};

class SimRendezvous final : public Rendezvous {
 public:
  SimRendezvous(Nic& nic, RendezvousTable& table) : nic_(nic), table_(table) {}
  void publish(std::string_view key, std::span<const std::byte> value) override;
  std::optional<std::vector<std::byte>> find(std::string_view key) override;
  std::vector<std::byte> await(std::string_view key, Time deadline) override;

 private:
  bool is_published_by(std::string_view key, Time deadline);
  Nic& nic_;
  RendezvousTable& table_;
};

class SimDevice final : public Device {
 public:
  SimDevice(Nic& nic, RendezvousTable& table);
  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  void open() override;
  Rendezvous& rendezvous() override { return rendezvous_; }
  std::unique_ptr<ProtectionDomain> create_protection_domain() override;
  std::unique_ptr<MemoryRegion> allocate(ProtectionDomain& pd, std::size_t bytes,
                                         std::uint32_t access) override;
  std::unique_ptr<MemoryRegion> register_memory(ProtectionDomain& pd, void* data, std::size_t bytes,
                                                std::uint32_t access) override;
  std::unique_ptr<MemoryRegion> allocate_device_memory(ProtectionDomain& pd, std::size_t bytes,
                                                       std::uint32_t access) override;
  std::unique_ptr<CompletionQueue> create_completion_queue(std::uint32_t entries) override;
  std::unique_ptr<SharedReceiveQueue> create_shared_receive_queue(ProtectionDomain& pd,
                                                                  std::uint32_t entries,
                                                                  std::uint32_t max_sges) override;
  std::unique_ptr<QueuePair> create_queue_pair(ProtectionDomain& pd, CompletionQueue& send_queue,
                                               CompletionQueue& receive_queue,
                                               const QpOptions& options,
                                               SharedReceiveQueue* shared_receives) override;
  std::unique_ptr<AddressHandle> create_address_handle(ProtectionDomain& pd, const QpAddress& peer,
                                                       const PathOptions& path) override;

 private:
  void check_entries(const char* what, std::uint64_t value, std::uint64_t most) const;
  void check_region(std::size_t bytes, std::uint32_t access) const;
  /// Throws Error(kInvalidArgument) for an object that another NIC made.
  void check_own(const char* what, const Nic& maker) const;
  std::uint32_t domain_of(const ProtectionDomain& pd) const;
  Nic& nic_;
  SimRendezvous rendezvous_;
  Capabilities capabilities_;
  std::string name_;
  std::uint64_t device_memory_used_ = 0;
};

}  // namespace pyrdma::fabric::sim
