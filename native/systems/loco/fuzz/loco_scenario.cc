#include "systems/loco/fuzz/loco_scenario.h"

#include <memory>

#include "base/error.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/loco/fuzz/kinds.h"
#include "systems/loco/fuzz/node.h"
#include "systems/loco/fuzz/presets.h"
#include "systems/loco/preset.h"

namespace pyrdma::loco {
namespace {

namespace sim = fabric::sim;
using scenario::Node;
using scenario::World;

void run_node(World& world, Env& env) {
  if (env.incarnation() != 0) return;  // no node recovers
  Fates& fates = world.fates;
  Ending ending(fates, world.phase, env.node());
  std::unique_ptr<Node> node;
  const auto attempt = [&](auto&& part) {
    try {
      part();
    } catch (const Error& error) {
      fates.failed(env.node(), error);
      ++world.outcome.info;
    }
  };
  // A node that leaves early looks dead to the others.
  const auto wait_for = [&](Stage stage) {
    fates.reached(env.node(), stage);
    const auto reached = [&] { return fates.all_reached(stage); };
    if (node) return node->go_on_until(reached);
    while (!reached()) env.sleep_until(env.now() + 100 * kMicrosecond);
  };
  attempt([&] {
    node = std::make_unique<Node>(world, env);
    node->run();
  });
  wait_for(Stage::kEnded);
  if (!fates.any_dead() && node) attempt([&] { node->leave(); });
  if (fates.any_dead()) {
    if (node) attempt([&] { node->settle(); });
    wait_for(Stage::kSettled);
    if (node) attempt([&] { node->look_around(); });
    wait_for(Stage::kOver);
  }
  ending.returns();
}

fuzz::Outcome run_channels(const fuzz::Options& wanted, bool locks_alone) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  keep_ways_short(options.faults);
  Crashes crashes(options);
  fuzz::FaultPhase phase(options, outcome, crashes.least_share());
  World world(options, outcome, phase, crashes, locks_alone);
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
  return {.name = "loco",
          .title = "LOCO's channels: variables, words, a queue, rings, locks, barriers",
          .run = [](const fuzz::Options& options) { return run_channels(options, false); },
          .mutations = {kBugNames.begin(), kBugNames.end()},
          .presets = {kPresetNames.begin(), kPresetNames.end()},
          .left_out = kLeftOutOfLoco,
          .branches = {"channel/join again",
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
                       "ring/change of caller",
                       "ring/full",
                       "ring/skip",
                       "runtime/dropped work",
                       "runtime/polling thread",
                       "store/full",
                       "store/slot used again"},
          .most_nodes = kMostNodes,
          .checks = {{"barrier", 0.8},
                     {"counter", 0.25},
                     {"fifo", 0.25},
                     {"kv", 0.25},
                     {"mutex", 0.25},
                     {"end", 0.95},
                     {"after a crash", 0.12}}};
}

fuzz::Scenario locks_scenario() {
  return {.name = "loco_locks",
          .title = "LOCO's ticket locks, which all clients take again and again",
          .run = [](const fuzz::Options& options) { return run_channels(options, true); },
          .mutations = {"release_without_fence", "host_adds_by_cpu"},
          .presets = {kPresetNames.begin(), kPresetNames.end()},
          .left_out = kLeftOutOfLoco,
          .branches = {"lock/back-off", "lock/hand-over", "lock/hand-over before placement",
                       "lock/last hand-over", "lock/words on the NIC"},
          .checks = {{"mutex", 0.9}, {"end", 0.95}, {"after a crash", 0.12}}};
}

}  // namespace pyrdma::loco
