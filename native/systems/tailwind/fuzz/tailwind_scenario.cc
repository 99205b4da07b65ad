#include "systems/tailwind/fuzz/tailwind_scenario.h"

#include <algorithm>

#include "base/error.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/tailwind/fuzz/fate.h"
#include "systems/tailwind/fuzz/node.h"

namespace pyrdma::tailwind {
namespace {

namespace sim = fabric::sim;
using scenario::World;

const fuzz::FaultsLeftOutList kLeftOutOfStore{
    {{Fault::memory_pressure}, "a server that finds no memory ends when it starts"},
    {{Fault::dc_storm}, "no queue pair is connected dynamically"}};

// Faults that last long have servers excluded, and a small store soon has too few. Fate opens their
// windows one by one; these have none.
void lower_losses_of_servers(fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz tailwind losses");
  // In some seeds they last longer than a lease.
  constexpr Time kLong = 5 * kMillisecond;
  if (rng.below(4) == 0) {
    for (const Fault fault :
         {Fault::partition, Fault::isolation, Fault::partition_partial, Fault::partition_one_way})
      options.faults[fault].max = std::max(options.faults[fault].max, kLong);
  }
  if (rng.below(4) == 0) return;
  // So many operations have about one of them at the rate of the table.
  constexpr double kOperations = 500;
  const double factor = std::min(1.0, kOperations / options.operations);
  for (const Fault fault : {Fault::qp_error, Fault::cq_overrun, Fault::region_revoked})
    options.faults[fault].rate *= factor;
}

// The coordinator has one disk. It finds damage there when it starts, and cannot go on then.
void spare_coordinator(fuzz::Options& options) {
  bool is_damaged = false;
  for (const Fault fault :
       {Fault::disk_unreadable, Fault::disk_misdirected, Fault::disk_rot, Fault::disk_lies})
    is_damaged = is_damaged || options.faults[fault].rate > 0;
  // Nor does a client die with it.
  if (!is_damaged && options.nodes >= 5) return;
  for (const Fault fault : {Fault::disk_io_error, Fault::disk_full, Fault::cq_overrun})
    options.faults[fault].rate = 0;
}

fuzz::Outcome run_store(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  lower_losses_of_servers(options);
  spare_coordinator(options);
  fuzz::FaultPhase phase(options, outcome);
  phase.leave(scenario::kCostly);
  World world(options, outcome, phase);
  world.bugs = Bugs::named(options.mutation);
  options.faults.coordinator = world.shape.store.coordinator;
  // Large values fill a segment with few operations, and the cleaner moves what is left of others.
  // Who stands still is found before: see Fate::watch().
  const Time slack = 4 * options.recovery_limit + options.operations * world.flush_time();
  sim::SimOptions simulation = fuzz::simulation_of(options, slack);
  // The scenario itself begins these, so that it knows what the store must survive. The simulator
  // only sees that there are faults.
  constexpr double kNever = 1e-6;
  for (const Fault fault : scenario::kCostly)
    simulation.faults[fault].rate = std::min(kNever, options.faults[fault].rate);
  sim::SimCluster cluster(simulation);
  world.cluster = &cluster;
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) { scenario::run_node(world, env); });
  } catch (const Error& error) {
    world.violation("liveness", std::string(error.what()).substr(0, 200) + world.describe());
  }
  world.check();
  const FaultCounters crashes = outcome.faults;
  fuzz::fill_outcome(outcome, cluster);
  for (std::size_t i = 0; i < kFaults; ++i) {
    outcome.faults.fired[i] += crashes.fired[i];
    outcome.faults.reached[i] += crashes.reached[i];
  }
  if (world.is_stalled) ++outcome.branches["tailwind/stalled"];
  if (world.may_lose) ++outcome.branches["tailwind/may_lose"];
  return outcome;
}

}  // namespace

fuzz::Scenario store_scenario() {
  fuzz::Scenario scenario{
      "tailwind",
      "Tailwind's store: servers die, come back and are cut off while clients use it",
      run_store,
      {kBugNames.begin(), kBugNames.end()},
      {scenario::kPresetNames.begin(), scenario::kPresetNames.end()},
      kLeftOutOfStore,
      {"tailwind/excluded", "tailwind/extra_worker", "tailwind/link_broken",
       "tailwind/log_freed_late", "tailwind/open_refused", "tailwind/recovery_repeated",
       "tailwind/replica_unreadable", "tailwind/port_anew", "tailwind/inherited_freed",
       "tailwind/sent_again", "tailwind/salvaged", "tailwind/version_raised", "tailwind/cleaned",
       "tailwind/compacted", "tailwind/connection_replaced", "tailwind/idle"}};
  scenario.most_nodes = 9;
  scenario.checks = {{"kv", 0.97}, {"whole", 0.8}, {"final reads", 0.8}};
  scenario.usual_nodes = 9;
  scenario.rarest = {"tailwind/cut_replaced", "tailwind/log_without_begin", "tailwind/refused_late",
                     "tailwind/replica_lost"};
  return scenario;
}

}  // namespace pyrdma::tailwind
