// The part of a run in which faults happen, measured by the run's operations.
//
// Faults that end before the operations begin find nothing. So three of four seeds hold the faults
// back until the first operation; the others begin them with the set-up. The faults end when a
// share of the operations that the seed draws has begun, or at a time limit.
#pragma once
#include <cstdint>

#include "fabric/sim/cluster.h"
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

class FaultPhase {
 public:
  /// Draws the phase and sets the faults and the memory of `options` accordingly. A heal_at that is
  /// set already alone decides the end of the faults. All arguments outlive the phase.
  FaultPhase(Options& options, Outcome& outcome);
  void attach(fabric::sim::SimCluster& cluster) { cluster_ = &cluster; }

  /// An operation begins. Every planned operation is counted once, also if Options::kept leaves it
  /// out.
  void operation();
  /// A node is killed.
  void crashed() { outcome_.crashed_after.push_back(outcome_.begun); }
  /// Returns the drawn factor for the pauses between operations: long runs meet more faults, short
  /// pauses let operations overlap.
  std::uint32_t pace() const { return pace_; }

 private:
  Outcome& outcome_;
  fabric::sim::SimCluster* cluster_ = nullptr;
  std::uint64_t end_after_ = 0;  // operations; 0: the time limit alone ends the faults
  std::uint32_t pace_ = 1;
};

}  // namespace pyrdma::fuzz
