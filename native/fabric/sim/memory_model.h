// The memory model says when the bytes of a simulated NIC become visible. The model is independent
// of the hardware profile. `strong` places a write whole, in order and before its completion.
// `weak` does everything that the verbs interface permits (fabric/sim/README.md, "Memory").
#pragma once
#include <cstdint>

#include "base/units.h"

namespace pyrdma::fabric::sim {

/// Behaviours that no NIC may have. The litmus suite must notice each of them.
enum class MemoryMutation : std::uint8_t {
  kNone,
  kNoDelay,          // too strong: no byte becomes visible late
  kReadsDoNotDrain,  // too weak: a read may overtake the writes before it
  kUnorderedWrites,  // too weak: writes of one connection are placed in any order
};

struct MemoryModel {
  /// Bound of the delay from a request's execution until its last byte is visible; 0 means strong.
  Time max_delay_ns = 0;
  double late_placement = 0;  // probability that a write is placed late, in pieces
  double late_source = 0;     // probability that the NIC reads a source as late as allowed
  double torn_read = 0;       // probability that the NIC samples a read's bytes at two moments
  double split_atomic = 0;    // probability that an atomic's write follows its read late
  MemoryMutation mutation = MemoryMutation::kNone;
  Time read_gap_ns = 300;  // bound of the time between the two moments of a torn read

  bool is_weak() const { return max_delay_ns > 0; }
  static MemoryModel strong() { return {}; }
  static MemoryModel weak() { return {4 * kMicrosecond, 0.5, 0.25, 0.25, 0.25}; }
};

}  // namespace pyrdma::fabric::sim
