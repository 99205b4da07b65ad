#include "fuzz/fabric/fabric_scenario.h"

#include "base/error.h"
#include "check/linearizability.h"
#include "fuzz/fabric/node.h"
#include "fuzz/fabric/word_history.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"

namespace pyrdma::fuzz {
namespace {

namespace sim = fabric::sim;

Outcome run_fabric(const Options& wanted) {
  Outcome outcome;
  Options options = wanted;
  hasten_control_path(options.profile);
  if (options.mutation == "unordered_writes")
    options.memory.mutation = sim::MemoryMutation::kUnorderedWrites;
  if (options.mutation == "reads_do_not_drain")
    options.memory.mutation = sim::MemoryMutation::kReadsDoNotDrain;
  // A node first sets up a connection to each other node. Each link then has its operations.
  const std::uint32_t n = options.nodes, each = options.operations / (n * (n - 1));
  draw_end_of_faults(options, (600 + 60 * Time{n} + 2 * Time{each}) * kMicrosecond,
                     1500 * kMicrosecond);
  World world(options, outcome);
  sim::SimCluster cluster(simulation_of(options, options.recovery_limit));
  world.cluster = &cluster;
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) {
      // The mutation imitates code whose decisions depend on addresses.
      if (options.mutation == "nondeterminism" && env.node() == 1)
        env.work(static_cast<Time>(reinterpret_cast<std::uintptr_t>(&world.nodes[1]) >> 12 & 1023));
      run_node(world, env);
    });
  } catch (const Error& error) {
    // The fabric must never cause this error. The text names the unfinished clients.
    world.violation(error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kInternal
                        ? "liveness"
                        : "error",
                    std::string(error.what()).substr(0, 120) + "; not done:" + world.unfinished());
  }
  world.check_words();
  const check::History history = history_of(world.words);
  judge(outcome, options, history, "register", cluster.now());
  world.check_memory();
  fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace

Scenario fabric_scenario() {
  return {"fabric",
          "one-sided requests, atomics, sends, datagrams and a log, between all nodes",
          &run_fabric,
          {"unordered_writes", "reads_do_not_drain", "nondeterminism"},
          {},
          {},
          {},
          32,
          true,
          2,
          {{"register", 0.7}, {"memory", 1}, {"log", 0.8}, {"log after a crash", 0.05}}};
}

}  // namespace pyrdma::fuzz
