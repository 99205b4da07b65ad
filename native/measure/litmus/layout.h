// Layout assigns the threads of a litmus test to agents and the locations to memory. A batch runs
// many rounds, each on places of its own, so that nodes synchronise once per batch. Every node
// computes the same layout.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "measure/litmus/program.h"

namespace pyrdma::measure::litmus {

inline constexpr std::size_t kMaxAgents = kMaxThreads + kMaxNodes;
inline constexpr std::size_t kWord = 8;

/// AgentPlace is a thread of the test, or of a node that only lends its memory.
struct AgentPlace {
  std::uint8_t node = 0;
  std::uint8_t on_node = 0;            // number among the agents of the node
  const TestThread* thread = nullptr;  // null: nothing to run
  std::size_t registers = 0;           // offset of the registers: one row per round
  std::uint8_t index = 0;              // index of the thread in the program
};

struct Layout {
  Layout(const Program& program, std::uint32_t batch);

  std::uint32_t rounds;                 // rounds of a batch
  std::vector<std::uint32_t> receives;  // receives that a batch needs, for each queue
  std::vector<AgentPlace> agents;
  std::vector<std::size_t> offsets, strides;  // of each location, in the region of its node
  std::size_t constant_bytes = kWord;         // of each number that puts read from memory
  std::array<std::size_t, kMaxNodes> plain{}, relaxed{};  // bytes of the nodes' regions
  std::size_t staging = 0;                                // offset, on node 0
  // Connections between two nodes.
  std::array<std::array<std::uint8_t, kMaxNodes>, kMaxNodes> channels{};
  std::array<std::uint8_t, kMaxNodes> agents_on{};

  // The control words precede every node's plain region, each on a line of its own.
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
