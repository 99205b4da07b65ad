#include "systems/spindle/fuzz/spindle_scenario.h"

#include "base/error.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/spindle/fuzz/node.h"

namespace pyrdma::spindle {
namespace {

namespace sim = fabric::sim;
using scenario::Node;
using scenario::World;

const std::vector<fuzz::FaultsLeftOut> kLeftOutOfGroups{
    {{Fault::placement_reorder},
     "the algorithm rests on the order of one queue pair's writes (section 2.2)"},
    {{Fault::corruption}, "no datagrams are used"},
    {{Fault::dc_storm}, "no queue pair is connected dynamically"},
    {{Fault::malformed}, "a request that is wrong before the post writes other bytes"},
    {{Fault::cq_overrun, Fault::memory_pressure, Fault::region_revoked},
     "a member that it meets ends with an error"},
    {fuzz::kDiskFaults, "spindle_logs has the disks"}};

/// A node that is killed unwinds.
struct Ending {
  World& world;
  NodeId node;
  Member member;
  bool returns = false;
  ~Ending() {
    if (returns) return;
    world.phase.crashed();
    for (auto& [number, life] : world.lives) {
      if (life.member.node == node) life.is_alive = false;
    }
  }
};

void run_node(World& world, Env& env) {
  Ending ending{world, env.node(), {}};
  try {
    Node node(world, env);
    node.run();
  } catch (const Error& error) {
    world.violation("error", "node " + std::to_string(env.node()) + ": " + error.what());
    world.is_over = true;
  }
  ending.returns = true;
}

// A small group soon has no majority under the rates of the table. Half of the seeds have one
// failure of one kind, and a third of the others has as many as the draw says.
void lower_losses_of_members(fuzz::Options& options, bool is_patient) {
  if (!options.asked.empty()) return;
  Rng rng(options.seed, -1, "fuzz spindle losses");
  if (!is_patient && rng.below(3) == 0) return;
  std::vector<Fault> on;
  for (const Fault fault : scenario::kLosses) {
    options.faults[fault].rate *= 0.15;
    if (options.faults[fault].rate > 0) on.push_back(fault);
  }
  options.faults[Fault::torn_crash].rate *= is_patient ? 1 : 0.15;
  if (!is_patient || on.empty()) return;
  const Fault only = on[rng.below(on.size())];
  for (const Fault fault : on) {
    if (fault != only) options.faults[fault].rate = 0;
  }
  if (fault_info(only).draw == FaultDraw::kWindow) options.faults[only].windows = 1;
}

fuzz::Outcome run_group(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  lower_losses_of_members(options, scenario::Shape(options).is_patient);
  fuzz::FaultPhase phase(options, outcome);
  World world(options, outcome, phase);
  world.bugs = Bugs::named(options.mutation);
  sim::SimCluster cluster(fuzz::simulation_of(options, 2 * options.recovery_limit));
  world.cluster = &cluster;
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) { run_node(world, env); });
  } catch (const Error& error) {
    world.violation("liveness", std::string(error.what()).substr(0, 200) + world.describe());
  }
  world.check();
  outcome.info += world.is_stalled;
  fuzz::fill_outcome(outcome, cluster);
  if (world.is_stalled) ++outcome.branches["spindle/stalled"];
  return outcome;
}

}  // namespace

fuzz::Scenario group_scenario() {
  return {
      "spindle",
      "Spindle's groups: multicasts in subgroups while members die, leave, join",
      run_group,
      {kBugNames.begin(), kBugNames.end()},
      {kPresetNames.begin(), kPresetNames.end()},
      kLeftOutOfGroups,
      {"spindle/doorbell", "spindle/excluded", "spindle/last_row_by_channel", "spindle/link_broken",
       "spindle/nulls", "spindle/queue_full", "spindle/ragged_trim", "spindle/ring_wraps",
       "spindle/send_queue_waits", "spindle/sent_again", "spindle/sent_in_next_view",
       "spindle/sleep", "spindle/stalled", "spindle/state_transferred", "spindle/suspected_broken",
       "spindle/suspected_silent", "spindle/torn_row", "spindle/wedge", "spindle/window_full"},
      8,
      true,
      2,
      {{"complete", 0.6},
       {"majority", 0.4},
       {"multicast", 0.95},
       {"quiescence", 0.6},
       {"stall", 0.2}},
      6,
      2000};
}

}  // namespace pyrdma::spindle
