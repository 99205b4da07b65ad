#include "systems/krcore/race/fuzz/race_scenario.h"

#include <algorithm>

#include "base/error.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/krcore/race/bugs.h"
#include "systems/krcore/race/fuzz/node.h"

namespace pyrdma::krcore::race {

namespace {

const fuzz::FaultsLeftOutList kLeftOutOfRace{
    {{Fault::corruption, Fault::rnr, Fault::dc_storm},
     "clients send no messages, and use no dynamic connections"},
    {{Fault::malformed}, "a request that is wrong before the post reads and writes other bytes"},
    {{Fault::cq_overrun, Fault::region_revoked, Fault::nic_failure},
     "memory has no replica: a client that loses a storage node ends"},
    {{Fault::battery_crash}, "the scenario itself ends clients: memory has no replica"},
    {{Fault::memory_pressure}, "a node that finds no memory ends"},
    {fuzz::kDiskFaults, "the table is in memory"}};

fuzz::Outcome run_race(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  fuzz::FaultPhase phase(options, outcome);
  phase.leave({Fault::crash, Fault::host_crash});
  scenario::World world(options, outcome, phase);
  fabric::sim::SimOptions simulation = fuzz::simulation_of(options, 8 * options.recovery_limit);
  // The simulator only sees that there are faults.
  constexpr double kNever = 1e-6;
  for (const Fault fault : {Fault::crash, Fault::host_crash})
    simulation.faults[fault].rate = std::min(kNever, options.faults[fault].rate);
  fabric::sim::SimCluster cluster(simulation);
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
  return outcome;
}

}  // namespace

fuzz::Scenario race_scenario() {
  return {"krcore_race",
          "RACE hashing: clients change keys of a table that splits, die amid it and come back",
          run_race,
          {kBugNames.begin(), kBugNames.end()},
          {},
          kLeftOutOfRace,
          {"race/CRC retry", "race/directory doubled", "race/duplicate removed",
           "race/insertion of another undone", "race/overflow bucket used",
           "race/split finished for another", "race/stale directory"},
          16,
          true,
          2,
          {{"kv", 0.9}, {"memory", 0.95}, {"all keys", 0.95}}};
}

}  // namespace pyrdma::krcore::race
