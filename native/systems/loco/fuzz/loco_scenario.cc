#include "systems/loco/fuzz/loco_scenario.h"

#include <array>

#include "base/error.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/loco/fuzz/node.h"
#include "systems/loco/fuzz/presets.h"
#include "systems/loco/preset.h"

namespace pyrdma::loco {
namespace {

namespace sim = fabric::sim;
using scenario::Node;
using scenario::World;

// LOCO assumes a static set of reliable peers on reliable connections, and that writes of one queue
// pair are placed in order (sections 2.2 and A). So it must survive every fault that such a
// connection hides. No node recovers from a crash: the other nodes must report it. All other faults
// are left out.
const std::vector<Fault> kFaultsOfLoco{Fault::loss,
                                       Fault::loss_burst,
                                       Fault::ack_loss,
                                       Fault::duplicate,
                                       Fault::reorder,
                                       Fault::delay,
                                       Fault::clog,
                                       Fault::cache_miss,
                                       Fault::queue_full,
                                       Fault::late_completion,
                                       Fault::rnr,
                                       Fault::pause,
                                       Fault::preemption,
                                       Fault::crash,
                                       Fault::slow_node,
                                       Fault::torn_crash,
                                       Fault::buffer_overflow,
                                       Fault::pause_storm,
                                       Fault::number_collision,
                                       Fault::noisy_neighbour};

/// Records how a node's part has ended. The unwinding of a killed node runs the destructor too.
struct Ending {
  World& world;
  NodeId node;
  bool returns = false;
  ~Ending() {
    if (returns) return;
    world.died[node] = true;
    world.phase.crashed();
  }
};

void run_node(World& world, Env& env) {
  if (env.incarnation() != 0) return;  // no node recovers
  Ending ending{world, env.node()};
  std::unique_ptr<Node> node;
  try {
    node = std::make_unique<Node>(world, env);
    node->run();
  } catch (const Error& error) {
    world.failed(env.node(), error);
    ++world.outcome.info;
  }
  world.ended[env.node()] = true;
  // A node that leaves early looks dead to the others.
  while (!world.all_ended()) env.sleep_until(env.now() + 100 * kMicrosecond);
  ending.returns = true;
}

fuzz::Outcome run_channels(const fuzz::Options& wanted, bool locks_alone) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  fuzz::FaultPhase phase(options, outcome);
  World world(options, outcome, phase, locks_alone);
  world.bugs = Bugs::named(options.mutation);
  sim::SimCluster cluster(fuzz::simulation_of(options, 8 * options.recovery_limit));
  world.cluster = &cluster;
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) { run_node(world, env); });
  } catch (const Error& error) {
    world.violation("liveness", std::string(error.what()).substr(0, 200));
  }
  world.check();
  fuzz::fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace

fuzz::Scenario channels_scenario() {
  return {"loco",
          "LOCO's channels: variables, words, a queue, rings, locks, barriers",
          [](const fuzz::Options& options) { return run_channels(options, false); },
          {kBugNames.begin(), kBugNames.end()},
          {kPresetNames.begin(), kPresetNames.end()},
          kFaultsOfLoco,
          {"channel/join again",
           "channel/subset",
           "fence/mark after a write",
           "fence/pair with reads in flight",
           "fence/thread with reads in flight",
           "lock/back-off",
           "lock/hand-over",
           "lock/hand-over before placement",
           "lock/last hand-over",
           "lock/words on the NIC",
           "owned_var/torn pull",
           "queue/empty",
           "queue/full",
           "queue/pop waits",
           "queue/push waits",
           "queue/ticket lost",
           "ring/full",
           "ring/skip",
           "runtime/dropped work",
           "runtime/polling thread",
           "store/full",
           "store/slot used again"},
          kMostNodes};
}

fuzz::Scenario locks_scenario() {
  return {"loco_locks",
          "LOCO's ticket locks, which all clients take again and again",
          [](const fuzz::Options& options) { return run_channels(options, true); },
          {"release_without_fence", "host_adds_by_cpu"},
          {kPresetNames.begin(), kPresetNames.end()},
          kFaultsOfLoco,
          {"lock/back-off", "lock/hand-over", "lock/hand-over before placement",
           "lock/last hand-over", "lock/words on the NIC"}};
}

}  // namespace pyrdma::loco
