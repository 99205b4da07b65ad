#include "fuzz/fault_phase.h"

#include <array>

namespace pyrdma::fuzz {
namespace {

constexpr std::array<std::uint32_t, 4> kPaces{1, 1, 8, 32};
// Reads of half of the runs take their samples far apart, and writes of half of the runs become
// visible very late. So a whole operation of another node fits between.
constexpr Time kLongGap = 20 * kMicrosecond, kLongDelay = 40 * kMicrosecond;
// The time limit of the faults: for the set-up, and for each operation.
constexpr Time kSetUp = 20 * kMillisecond, kPerOperation = 10 * kMicrosecond;

}  // namespace

FaultPhase::FaultPhase(Options& options, Outcome& outcome) : outcome_(outcome) {
  Rng rng(options.seed, -1, "fuzz phase");
  pace_ = kPaces[rng.below(kPaces.size())];
  if (options.memory.is_weak() && rng.below(2) == 0) options.memory.read_gap_ns = kLongGap;
  if (options.memory.is_weak() && rng.below(2) == 0) options.memory.max_delay_ns = kLongDelay;
  options.faults.at_once = rng.below(4) == 0;
  const std::uint64_t share = 60 + rng.below(41);  // percent
  if (options.faults.heal_at != kForever) return;
  end_after_ = 1 + options.operations * share / 100;
  options.faults.heal_at = kSetUp + kPerOperation * pace_ * options.operations;
}

void FaultPhase::operation() {
  if (outcome_.begun == 0) cluster_->begin_faults();
  ++outcome_.begun;
  if (outcome_.begun == end_after_ + 1 && end_after_ != 0) cluster_->heal();
  outcome_.begun_under_faults += cluster_->faults_are_on();
}

}  // namespace pyrdma::fuzz
