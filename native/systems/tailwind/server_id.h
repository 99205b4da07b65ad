// The name of a server in one of its lives. A server that was taken for dead comes back under a new
// name, so nothing that belongs to its last life can be taken for its own.
#pragma once
#include <compare>
#include <cstdint>
#include <string>

#include "env/env.h"

namespace pyrdma::tailwind {

struct ServerId {
  /// Lives of one incarnation of a node; the first one is incarnation * kLives.
  static constexpr std::uint32_t kLives = 4096;

  NodeId node = ~NodeId{0};
  std::uint32_t life = 0;
  auto operator<=>(const ServerId&) const = default;
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
