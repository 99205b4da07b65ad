// Datagrams that nobody may believe, and the port that sends them.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "systems/krcore/fuzz/world.h"

namespace pyrdma::krcore::scenario {

/// A datagram queue pair of no service, which sends what it likes. One thread at a time uses it.
class Stranger {
 public:
  /// With `receives` it takes so many datagrams.
  explicit Stranger(Env& env, std::uint32_t receives = 0);
  fabric::QpAddress port() const { return qp_->address(); }
  /// Sends up to 512 B, and waits until the NIC has sent them. They may be lost. Returns whether
  /// the queue pair has taken them.
  bool send(const fabric::QpAddress& to, std::span<const std::byte> datagram);
  /// Returns the next datagram that has come; nothing after a second.
  std::vector<std::byte> take();

 private:
  static constexpr std::uint32_t kSends = 4;
  static constexpr std::uint32_t kSlot = 1024, kMostBytes = 512;
  void receive(std::uint32_t slot);
  Env& env_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<fabric::CompletionQueue> sent_, received_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::unique_ptr<fabric::MemoryRegion> memory_;  // a datagram to send, then receives
};

/// The name in the rendezvous of the port of a node's life.
std::string port_key(const std::string& service, NodeId node, std::uint32_t life);

/// A thread of a node, beside its service: sends forged datagrams of the control path to all
/// services until the world is over.
void send_forged(World& world, Env& env);

}  // namespace pyrdma::krcore::scenario
