// The part of a run in which faults happen, measured by the run's operations.
//
// Faults that end before the operations begin find nothing. So three of four seeds hold the faults
// back until the first operation; the others begin them with the set-up. The faults end when a
// share of the operations that the seed draws has begun, or when no operation begins for a while.
// FaultOptions::Setting::windows are spread evenly over these operations.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "fabric/sim/cluster.h"
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

class FaultPhase {
 public:
  /// Draws the phase and sets the faults and the memory of `options` accordingly. The faults last
  /// for `least_share` percent of the operations or more. A heal_at that is set already alone
  /// decides the end of the faults. All arguments outlive the phase.
  FaultPhase(Options& options, Outcome& outcome, std::uint64_t least_share = 60);
  /// A run without progress() for `patience` of virtual time fails. The limit that the cluster has
  /// at its begin stays a bound from below.
  void attach(fabric::sim::SimCluster& cluster, Time patience = 200 * kMillisecond);

  /// The scenario itself has the faults of these kinds, and asks begins() for each.
  void leave(std::initializer_list<Fault> kinds) { left_.assign(kinds); }
  /// Whether a window of a kind that was left to the scenario begins now, `step` after the last
  /// call. `rng` draws, if the windows begin at random times.
  bool begins(Fault fault, Time step, Rng& rng);

  /// An operation begins. Every planned operation is counted once, also if Options::kept leaves it
  /// out. Returns a mark for ended().
  std::uint64_t operation();
  /// An operation has ended, in whatever way.
  void ended(std::uint64_t mark);
  /// Something has gone on: a step of the set-up, of an operation, or of the end checks. A run that
  /// is stuck has a bound of such steps.
  void progress();
  /// A node is killed.
  void crashed() { outcome_.crashed_after.push_back(outcome_.begun); }
  /// Returns the drawn factor for the pauses between operations: long runs meet more faults, short
  /// pauses let operations overlap.
  std::uint32_t pace() const { return pace_; }

 private:
  std::uint64_t effects() const;  // of all faults so far

  const FaultOptions& faults_;
  Outcome& outcome_;
  fabric::sim::SimCluster* cluster_ = nullptr;
  Time patience_ = 0;
  std::vector<Fault> left_, due_;  // kinds that the scenario has itself; windows of these
  std::uint64_t end_after_ = 0;    // operations; 0: the time limit alone ends the faults
  std::vector<std::pair<std::uint64_t, Fault>> windows_;  // by operations begun; last ones first
  std::uint32_t pace_ = 1;
};

}  // namespace pyrdma::fuzz
