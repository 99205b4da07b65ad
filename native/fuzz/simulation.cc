#include "fuzz/simulation.h"

#include <algorithm>

namespace pyrdma::fuzz {

void keep_faults(FaultOptions& faults, std::span<const Fault> kept) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    if (std::find(kept.begin(), kept.end(), static_cast<Fault>(i)) == kept.end()) {
      faults.settings[i].rate = 0;
    }
  }
}

void draw_end_of_faults(Options& options, Time least, Time range) {
  if (options.faults.heal_at != kForever) return;
  Rng rng(options.seed, -1, "fuzz heal");
  options.faults.heal_at = least + static_cast<Time>(rng.below(static_cast<std::uint64_t>(range)));
}

fabric::sim::SimOptions simulation_of(const Options& options, Time slack) {
  fabric::sim::SimOptions simulation;
  simulation.nodes = options.nodes;
  simulation.profile = options.profile;
  simulation.seed = options.seed;
  simulation.memory = options.memory;
  simulation.faults = options.faults;
  simulation.time_limit = options.faults.heal_at + slack;
  return simulation;
}

void fill_outcome(Outcome& outcome, fabric::sim::SimCluster& cluster) {
  outcome.fingerprint = cluster.fingerprint();
  outcome.virtual_ns = cluster.now();
  outcome.events = cluster.events();
  outcome.faults = cluster.fault_counters();
  outcome.trace = cluster.trace();
}

}  // namespace pyrdma::fuzz
