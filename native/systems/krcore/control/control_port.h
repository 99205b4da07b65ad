// The port by which a service sends and takes datagrams of the control path.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "env/env.h"
#include "fabric/fabric.h"
#include "systems/krcore/bugs.h"
#include "systems/krcore/wire.h"

namespace pyrdma::krcore {

/// One thread at a time may use it.
class ControlPort {
 public:
  ControlPort(Env& env, fabric::ProtectionDomain& domain, Bugs bugs = {});
  const fabric::QpAddress& address() const { return address_; }
  fabric::CompletionQueue& completions() { return *completions_; }
  /// Sends a datagram; a full queue drops it, as the network may. `to` must outlive the request, so
  /// the port keeps it. Fills port and sum.
  void send(const std::shared_ptr<fabric::AddressHandle>& handle, const fabric::QpAddress& to,
            ControlMessage message);
  /// Takes the next datagram that is whole. It comes from its `port`, which is one of the node
  /// `from`: nobody speaks for another node. Whether that is the port of a service is not known.
  std::optional<ControlMessage> take();

 private:
  static constexpr std::uint32_t kReceives = 512, kSends = 256;
  static constexpr std::uint32_t kSlot = 512;  // bytes
  static_assert(sizeof(ControlMessage) + fabric::kGrhBytes <= kSlot);
  void receive(std::uint32_t slot);

  Env& env_;
  const Bugs bugs_;
  std::unique_ptr<fabric::MemoryRegion> memory_;  // receives, then places to send from
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<fabric::QueuePair> qp_;
  fabric::QpAddress address_;
  std::uint32_t next_send_ = 0;
  std::uint32_t ended_receives_ = 0;  // of a queue pair that has failed
  std::array<std::shared_ptr<fabric::AddressHandle>, kSends> handles_;
};

}  // namespace pyrdma::krcore
