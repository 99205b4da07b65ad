// The name of a server, the coordinator or a client in one of its lives. A server that was taken
// for dead comes back under a new name, so nothing that belongs to its last life can be taken for
// its own.
#pragma once
#include <compare>
#include <cstdint>
#include <string>

#include "env/env.h"

namespace pyrdma::tailwind {

struct ServerId {
  /// Lives of one incarnation of a node: first those of servers, or of the coordinator, then those
  /// of clients.
  static constexpr std::uint32_t kLives = 1U << 16;
  static constexpr std::uint32_t kServers = kLives / 2, kClients = kLives - kServers;
  static constexpr std::uint32_t kIncarnations = 1U << 16;

  NodeId node = ~NodeId{0};
  std::uint32_t life = 0;
  auto operator<=>(const ServerId&) const = default;

  // The names in one incarnation. A name beyond its part would be another one's, so these throw
  // Error(kInvalidArgument), which names the value and the bound.
  static ServerId of_server(NodeId node, std::uint32_t incarnation, std::uint32_t life);
  static ServerId of_client(NodeId node, std::uint32_t incarnation, std::uint32_t number);

  std::uint32_t incarnation() const { return life / kLives; }
  /// Or the coordinator's.
  bool is_server() const { return life % kLives < kServers; }
  /// `other` has ended, since this one is there: it is of an earlier incarnation of the node, or an
  /// earlier server of the same one. Clients of a node live side by side.
  bool replaces(ServerId other) const {
    if (node != other.node) return false;
    return incarnation() > other.incarnation() ||
           (incarnation() == other.incarnation() && is_server() && other.is_server() &&
            life > other.life);
  }
  /// Also the number of the server's log.
  std::uint64_t number() const { return std::uint64_t{life} << 32 | node; }
  static ServerId of(std::uint64_t number) {
    return {static_cast<NodeId>(number), static_cast<std::uint32_t>(number >> 32)};
  }
};

/// "node 3, life 0", for messages.
inline std::string to_string(ServerId id) {
  return "node " + std::to_string(id.node) + ", life " + std::to_string(id.life);
}

}  // namespace pyrdma::tailwind
