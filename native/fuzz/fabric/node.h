// Node is one incarnation of one node: its memory and its clients.
#pragma once
#include <memory>
#include <string>

#include "base/error.h"
#include "fuzz/fabric/world.h"

namespace pyrdma::fuzz {

inline constexpr std::uint32_t kReliableWindow = 24, kUnreliableWindow = 8;
inline constexpr std::uint32_t kReliableReceives = 32, kUnreliableReceives = 16;
inline constexpr std::uint32_t kDatagramReceives = 24, kSharedReceives = 24;
inline constexpr std::uint32_t kReceiveBytes = kMostBytes + 64;  // includes the space of a GRH
inline constexpr Time kRetryAfter = 20 * kMicrosecond;           // between two attempts of a set-up

/// Tags mark the wr_ids of each queue pair.
inline constexpr std::uint32_t kReliableTag = 1, kUnreliableTag = 2, kDatagramTag = 3, kDcTag = 4;

/// NodeAddress tells how to reach a node. Each version is published under a key of its own.
struct NodeAddress {
  fabric::RemoteRegion shared;
  fabric::QpAddress datagrams, dc_target;
  std::uint32_t incarnation = 0;
};

struct Node {
  Node(World& world, Env& env);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Calls `make()` until the device has memory for the object.
  template <class Make>
  auto persist(Make make) {
    for (;;) {
      try {
        return make();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kExhausted) throw;
      }
      env.sleep_until(env.now() + kRetryAfter);
    }
  }
  fabric::QpOptions queue_pair_options(fabric::Transport transport) const;
  /// Returns the buffers of the client that talks to `peer` (this node's number: the client that
  /// talks to any node): first those of the windows, then those of receives.
  std::byte* buffers(NodeId peer) const;
  static std::size_t buffers_of_client();
  void trace(const char* what, const std::string& details);
  bool tracing() const;

  World& world;
  Env& env;
  fabric::Device& device;
  const NodeId id;
  const std::uint32_t incarnation;
  std::byte* local_data = nullptr;
  std::unique_ptr<fabric::ProtectionDomain> pd;
  std::unique_ptr<fabric::MemoryRegion> shared, local;
};

/// Runs a node from its start until all clients of all nodes are done.
void run_node(World& world, Env& env);

}  // namespace pyrdma::fuzz
