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

const fuzz::FaultsLeftOutList kLeftOutOfMemory =
    fuzz::joined(kLeftOutOfGroups, {{fuzz::kDiskFaults, "spindle_logs has the disks"}});

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

// A small group soon has no majority under the rates of the table. So most seeds have as many kinds
// of failures as a group of this size survives, each once, and two at most; those with patient
// members have one.
void lower_losses_of_members(fuzz::Options& options, bool is_patient) {
  if (!options.asked.empty()) return;
  Rng rng(options.seed, -1, "fuzz spindle losses");
  if (!is_patient && rng.below(5) == 0) return;
  std::vector<Fault> on;
  for (const Fault fault : scenario::kLosses) {
    options.faults[fault].rate *= 0.15;
    if (options.faults[fault].rate > 0) on.push_back(fault);
  }
  options.faults[Fault::torn_crash].rate *= is_patient ? 1 : 0.15;
  const auto kills = [](Fault fault) {
    return fault == Fault::crash || fault == Fault::host_crash || fault == Fault::battery_crash;
  };
  const std::size_t survived =
      options.nodes < 3 ? rng.below(2) : std::min<std::size_t>((options.nodes - 1) / 2, 2);
  const std::size_t most = is_patient ? std::min<std::size_t>(survived, 1) : survived;
  while (on.size() > most) {
    const std::size_t left_out = rng.below(on.size());
    if (kills(on[left_out]) && rng.below(4) != 0) continue;  // a member that dies shows most
    options.faults[on[left_out]].rate = 0;
    on.erase(on.begin() + static_cast<std::ptrdiff_t>(left_out));
  }
  for (const Fault fault : on) {
    if (fault_info(fault).draw == FaultDraw::kWindow) options.faults[fault].windows = 1;
  }
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
  // Nodes ask for a place for join_timeout, and the end of the group shows after 20 timeouts.
  phase.attach(cluster, std::max(200 * kMillisecond, 40 * world.shape.group.suspicion_timeout));
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
      kLeftOutOfMemory,
      {"spindle/doorbell", "spindle/excluded", "spindle/last_row_by_channel", "spindle/link_broken",
       "spindle/nulls", "spindle/queue_full", "spindle/ragged_trim", "spindle/ring_wraps",
       "spindle/send_queue_waits", "spindle/sent_again", "spindle/sent_in_next_view",
       "spindle/sleep", "spindle/stalled", "spindle/state_transferred", "spindle/suspected_broken",
       "spindle/suspected_silent", "spindle/torn_row", "spindle/wedge", "spindle/window_full"},
      8,
      true,
      2,
      {{"complete", 0.66},
       {"majority", 0.45},
       {"multicast", 0.95},
       {"quiescence", 0.66},
       {"stall", 0.22}},
      6,
      2000};
}

}  // namespace pyrdma::spindle
