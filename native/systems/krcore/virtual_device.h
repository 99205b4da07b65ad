// Virtual queue pairs as queue pairs of a fabric::Device, so that a program for verbs runs on the
// service unchanged. Posts and polls are calls of the kernel.
//
// What differs from a device (fabric/README.md): only RC, without shared receive queues and memory
// on the NIC. Completion queues do not overrun. The rights of a queue pair (QpOptions::access) are
// not checked, those of regions are. A send may end before its receiver has posted a receive.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "systems/krcore/app.h"
#include "systems/krcore/device_env.h"

namespace pyrdma::krcore {

class VirtualDevice final : public fabric::Device {
 public:
  explicit VirtualDevice(Service& service);
  const fabric::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  void open() override {}
  fabric::Rendezvous& rendezvous() override { return device().rendezvous(); }
  std::unique_ptr<fabric::ProtectionDomain> create_protection_domain() override;
  std::unique_ptr<fabric::MemoryRegion> allocate(fabric::ProtectionDomain& pd, std::size_t bytes,
                                                 std::uint32_t access) override;
  std::unique_ptr<fabric::MemoryRegion> register_memory(fabric::ProtectionDomain& pd, void* data,
                                                        std::size_t bytes,
                                                        std::uint32_t access) override;
  std::unique_ptr<fabric::MemoryRegion> allocate_device_memory(fabric::ProtectionDomain& pd,
                                                               std::size_t bytes,
                                                               std::uint32_t access) override;
  std::unique_ptr<fabric::CompletionQueue> create_completion_queue(std::uint32_t entries) override;
  std::unique_ptr<fabric::SharedReceiveQueue> create_shared_receive_queue(
      fabric::ProtectionDomain& pd, std::uint32_t entries, std::uint32_t max_sges) override;
  std::unique_ptr<fabric::QueuePair> create_queue_pair(
      fabric::ProtectionDomain& pd, fabric::CompletionQueue& send_queue,
      fabric::CompletionQueue& receive_queue, const fabric::QpOptions& options,
      fabric::SharedReceiveQueue* shared_receives) override;
  std::unique_ptr<fabric::AddressHandle> create_address_handle(
      fabric::ProtectionDomain& pd, const fabric::QpAddress& peer,
      const fabric::PathOptions& path) override;

 private:
  fabric::Device& device() { return service_.env().device(); }
  Service& service_;
  fabric::Capabilities capabilities_;
  std::string name_;
};

using VirtualEnv = DeviceEnv<VirtualDevice, Service>;

}  // namespace pyrdma::krcore
