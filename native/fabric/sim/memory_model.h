// When a simulated NIC's bytes become visible. Independent of the hardware profile: `strong` places
// a write whole, in order and before its completion; `weak` does everything that the verbs
// interface permits (README.md, "Memory").
#pragma once
#include <cstdint>

#include "base/units.h"

namespace pyrdma::fabric::sim {

/// Behaviour that no NIC may have: the litmus suite must notice each.
enum class MemoryMutation : std::uint8_t {
  kNone,
  kNoDelay,          // too strong: nothing is ever seen late
  kReadsDoNotDrain,  // too weak: a read may overtake the writes before it
  kUnorderedWrites,  // too weak: writes of one connection are placed in any order
};

struct MemoryModel {
  /// Bound of the delay from a request's execution until its last byte is visible; 0: strong.
  Time max_delay_ns = 0;
  double late_placement = 0;  // probability that a write is placed late, in pieces
  double late_source = 0;     // probability that a source is read as late as allowed
  double torn_read = 0;       // probability that a read is sampled at two different moments
  double split_atomic = 0;    // probability that an atomic's write follows its read late
  MemoryMutation mutation = MemoryMutation::kNone;

  bool is_weak() const { return max_delay_ns > 0; }
  static MemoryModel strong() { return {}; }
  static MemoryModel weak() { return {4 * kMicrosecond, 0.5, 0.25, 0.25, 0.25}; }
};

}  // namespace pyrdma::fabric::sim
