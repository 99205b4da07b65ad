// Who runs a litmus test and where its memory lies. A batch runs many rounds, each on places of its
// own, so that nodes meet once a batch. Every node computes the same layout.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "measure/litmus/program.h"

namespace pyrdma::measure::litmus {

inline constexpr std::size_t kMaxAgents = kMaxThreads + kMaxNodes;
inline constexpr std::size_t kWord = 8;

/// A thread of the test, or of a node that only lends its memory.
struct AgentPlace {
  std::uint8_t node = 0;
  std::uint8_t on_node = 0;            // number among the node's agents
  const TestThread* thread = nullptr;  // null: nothing to run
  std::size_t registers = 0;           // offset of a row of the program's registers per round
  std::uint8_t index = 0;              // of the thread in the program
};

struct Layout {
  Layout(const Program& program, std::uint32_t batch);

  std::uint32_t rounds;                 // of a batch
  std::vector<std::uint32_t> receives;  // that a batch needs, of each queue
  std::vector<AgentPlace> agents;
  std::vector<std::size_t> offsets, strides;  // of each location, in its node's region
  std::size_t constant_bytes = kWord;         // of each number that puts read from memory
  std::array<std::size_t, kMaxNodes> plain{}, relaxed{};  // bytes of the nodes' regions
  std::size_t staging = 0;                                // offset, on node 0
  std::array<std::array<std::uint8_t, kMaxNodes>, kMaxNodes> channels{};  // between two nodes
  std::array<std::uint8_t, kMaxNodes> agents_on{};

  // In front of every node's plain region, each on a line of its own.
  static std::size_t go(std::size_t agent) { return agent * kCacheLineBytes; }
  static std::size_t arrived(std::size_t agent) { return (kMaxAgents + agent) * kCacheLineBytes; }
  static std::size_t scratch(std::size_t agent) {
    return (2 * kMaxAgents + agent) * kCacheLineBytes;
  }
  static constexpr std::size_t kCacheLineBytes = 64;
  static constexpr std::size_t kControlBytes = 3 * kMaxAgents * kCacheLineBytes;
  std::size_t constant(Value value) const { return kControlBytes + value * constant_bytes; }
};

}  // namespace pyrdma::measure::litmus
