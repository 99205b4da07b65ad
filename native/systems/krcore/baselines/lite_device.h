// LITE's calls behind the interface of a fabric::Device, so that RACE runs on them unchanged.
//
// LITE has no queue pairs for its users: each request is a call of its own, and each poll is one.
// Its parallel connections take turns, so requests have no order. A queue pair here gives RACE the
// order that it needs: a request that changes memory waits until all before it have ended, and what
// follows waits for it. Reads go at once.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "systems/krcore/baselines/lite.h"
#include "systems/krcore/device_env.h"

namespace pyrdma::krcore {

class LiteDevice final : public fabric::Device {
 public:
  explicit LiteDevice(Lite& lite);
  const fabric::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return name_; }
  void open() override {}
  fabric::Rendezvous& rendezvous() override { return lite_.env().device().rendezvous(); }
  std::unique_ptr<fabric::ProtectionDomain> create_protection_domain() override;
  /// Peers have all rights: LITE registers the memory of the node once.
  std::unique_ptr<fabric::MemoryRegion> allocate(fabric::ProtectionDomain& pd, std::size_t bytes,
                                                 std::uint32_t access) override;
  std::unique_ptr<fabric::CompletionQueue> create_completion_queue(std::uint32_t entries) override;
  /// Its connect() takes the connections that there are to the peer's node, or makes them.
  std::unique_ptr<fabric::QueuePair> create_queue_pair(
      fabric::ProtectionDomain& pd, fabric::CompletionQueue& send_queue,
      fabric::CompletionQueue& receive_queue, const fabric::QpOptions& options,
      fabric::SharedReceiveQueue* shared_receives) override;

  // These throw Error(kUnavailable).
  std::unique_ptr<fabric::MemoryRegion> register_memory(fabric::ProtectionDomain& pd, void* data,
                                                        std::size_t bytes,
                                                        std::uint32_t access) override;
  std::unique_ptr<fabric::MemoryRegion> allocate_device_memory(fabric::ProtectionDomain& pd,
                                                               std::size_t bytes,
                                                               std::uint32_t access) override;
  std::unique_ptr<fabric::SharedReceiveQueue> create_shared_receive_queue(
      fabric::ProtectionDomain& pd, std::uint32_t entries, std::uint32_t max_sges) override;
  std::unique_ptr<fabric::AddressHandle> create_address_handle(
      fabric::ProtectionDomain& pd, const fabric::QpAddress& peer,
      const fabric::PathOptions& path) override;

 private:
  friend class LiteQueue;
  Lite& lite_;
  Mutex mutex_;  // guards all below
  /// LITE keeps the address of a request until it has ended, also beyond the end of its queue pair.
  std::deque<std::deque<LiteRequest>> requests_;
  std::uint32_t next_number_ = 1;
  fabric::Capabilities capabilities_;
  std::string name_;
};

using LiteEnv = DeviceEnv<LiteDevice, Lite>;

}  // namespace pyrdma::krcore
