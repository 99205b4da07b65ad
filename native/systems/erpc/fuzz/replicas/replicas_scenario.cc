#include "systems/erpc/fuzz/replicas/replicas_scenario.h"

#include <algorithm>

#include "base/error.h"
#include "fuzz/patience.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/erpc/fuzz/erpc_scenario.h"
#include "systems/erpc/fuzz/replicas/replicas.h"

namespace pyrdma::erpc {
namespace {

using replicas::Client;

const fuzz::FaultsLeftOutList kLeftOutOfReplicas = fuzz::joined(
    kLeftOutOfRpcs,
    {{{Fault::memory_pressure}, "a member that finds no memory ends"},
     {{Fault::disk_unreadable, Fault::disk_misdirected, Fault::disk_rot, Fault::disk_lies},
      "Raft needs what was synchronised: erpc_raft_group damages a minority"}});

/// A node that is killed unwinds.
struct Life {
  replicas::World& world;
  bool returns = false;
  ~Life() {
    if (!returns) world.phase.crashed();
  }
};

/// The first client waits for all others, and then for the members. Then all is over.
void finish(replicas::World& world, Env& env, Client& client) {
  const std::size_t number = env.node() - world.members;
  world.finished[number] = true;
  if (number != 0) {
    client.wait([&] { return world.over; }, kForever);
    return;
  }
  const auto are_done = [&] {
    return std::ranges::find(world.finished, false) == world.finished.end() &&
           !world.cluster->faults_are_on();
  };
  const Time look = 100 * kMicrosecond;
  while (!are_done()) client.wait([] { return false; }, env.now() + look);
  world.outcome.made("settled");
  fuzz::Patience patience(4 * world.options.recovery_limit);
  while (!world.is_settled() && !patience.is_over(world.cluster->now(), world.applied())) {
    world.phase.progress();
    client.wait([] { return false; }, env.now() + look);
  }
  if (!world.is_settled())
    world.violation("liveness", "the members have not settled" + world.describe());
  world.over = true;
}

void run_node(replicas::World& world, Env& env) {
  Life life{world};
  if (env.incarnation() != 0) ++world.outcome.restarts;
  try {
    if (env.node() < world.members) {
      run_member(world, env);
    } else {
      Client client(world, env);
      if (client.run()) finish(world, env, client);
      world.over = world.over || !world.outcome.violations.empty();
    }
  } catch (const Error& error) {
    world.violation("error", "node " + std::to_string(env.node()) + ": " + error.what());
    world.over = true;
  }
  life.returns = true;
}

fuzz::Outcome run_replicas(const fuzz::Options& wanted) {
  if (const std::string problem = raft::raft_problem(); !problem.empty())
    throw Error(ErrorCode::kUnavailable, problem);
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  // A sync takes as long as on a fast disk, so that hosts lose their power within it.
  options.profile.storage_write_us = std::max(options.profile.storage_write_us, 5.0);
  options.profile.storage_sync_us = std::clamp(options.profile.storage_sync_us, 20.0, 100.0);
  fuzz::FaultPhase phase(options, outcome);
  // An operation may wait for an election, which takes longer than the phase's limit allows for.
  if (wanted.faults.heal_at == kForever)
    options.faults.heal_at += options.operations * (kMillisecond / 2);
  replicas::World world(options, outcome, phase);
  fabric::sim::SimCluster cluster(fuzz::simulation_of(
      options, 20 * options.recovery_limit + options.operations * 2 * kMillisecond));
  world.cluster = &cluster;
  world.observer.watch(cluster);
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) { run_node(world, env); });
  } catch (const Error& error) {
    world.violation("liveness", std::string(error.what()).substr(0, 200));
  }
  outcome.made("raft");
  for (const auto& finding : world.invariants.findings())
    outcome.report("raft", cluster.now(), finding.text);
  outcome.made("exactly once");
  if (world.invariants.executions() > world.puts)
    outcome.report("exactly once", cluster.now(),
                   std::to_string(world.puts) + " puts were executed " +
                       std::to_string(world.invariants.executions()) + " times");
  fuzz::judge(outcome, options, world.history, "kv", cluster.now());
  fuzz::fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace

fuzz::Scenario replicas_scenario() {
  return {"erpc_raft",
          "eRPC: a store that Raft replicates, whose members and clients die and come back",
          run_replicas,
          {"vote_not_persisted", "term_not_persisted", "acknowledged_before_stored",
           "failed_append_kept", "truncation_forgotten", "compacted_before_snapshot",
           "vote_ignores_log", "acknowledges_leftovers", "runs_again", "renumbers_retry"},
          {},
          kLeftOutOfReplicas,
          {"erpc/raft/leftover_not_acknowledged", "erpc/raft/long_message",
           "erpc/raft/malformed_request", "erpc/raft/member_failed", "erpc/raft/repeated_put",
           "erpc/raft/session_made_again", "erpc/raft/snapshot_installed",
           "erpc/raft/snapshot_taken", "erpc/raft/truncated"},
          8,
          true,
          2,
          {{"exactly once", 0.99}, {"kv", 0.95}, {"raft", 0.99}, {"settled", 0.98}},
          6,
          2000};
}

}  // namespace pyrdma::erpc
