#include "systems/erpc/fuzz/erpc_scenario.h"

#include <algorithm>

#include "base/error.h"
#include "fuzz/quick_control.h"
#include "fuzz/simulation.h"
#include "systems/erpc/fuzz/node.h"

namespace pyrdma::erpc {
namespace {

namespace sim = fabric::sim;
using scenario::Node;
using scenario::World;

// Datagrams may meet all of these. A device without memory, or that fails for a while, ends an
// endpoint; disks and one-sided operations are not part of eRPC.
const std::vector<Fault> kFaultsOfRpc{Fault::loss,
                                      Fault::loss_burst,
                                      Fault::duplicate,
                                      Fault::reorder,
                                      Fault::delay,
                                      Fault::clog,
                                      Fault::corruption,
                                      Fault::cache_miss,
                                      Fault::queue_full,
                                      Fault::qp_error,
                                      Fault::pause,
                                      Fault::preemption,
                                      Fault::clock_skew,
                                      Fault::crash,
                                      Fault::host_crash,
                                      Fault::number_reuse,
                                      Fault::partition,
                                      Fault::isolation,
                                      Fault::partition_partial,
                                      Fault::partition_one_way,
                                      Fault::partition_flapping,
                                      Fault::slow_node,
                                      Fault::buffer_overflow,
                                      Fault::pause_storm,
                                      Fault::number_collision,
                                      Fault::noisy_neighbour};

/// A node that is killed unwinds: its calls have no end.
struct Ending {
  World& world;
  NodeId node;
  bool returns = false;
  ~Ending() {
    if (returns) return;
    world.phase.crashed();
    world.client_died(node);
  }
};

void run_node(World& world, Env& env) {
  Ending ending{world, env.node()};
  try {
    Node node(world, env);
    if (env.incarnation() != 0) ++world.outcome.restarts;
    node.run();
  } catch (const Error& error) {
    world.violation("error", "node " + std::to_string(env.node()) + ": " + error.what());
    world.stages[env.node()] = scenario::Stage::kDone;
  }
  ending.returns = true;
}

// A network may lose up to half of all packets.
void raise_loss(fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz erpc loss");
  double& rate = options.faults[Fault::loss].rate;
  if (rate > 0 && rate < 0.1 && rng.below(3) == 0) rate = 0.5 * rng.uniform();
}

// Leaves the faults out that would end a session, unless the user has named them.
void calm_down(fuzz::Options& options) {
  const scenario::Shape shape = scenario::draw_shape(options);
  if (!shape.is_steady || !options.asked.empty()) return;
  for (const Fault fault : kFaultsOfRpc) {
    const bool ends_endpoints = fault == Fault::crash || fault == Fault::host_crash;
    const bool is_harmless =
        std::ranges::find(scenario::kHarmlessFaults, fault) != scenario::kHarmlessFaults.end();
    if (ends_endpoints || (shape.is_calm && !is_harmless)) options.faults[fault].rate = 0;
  }
}

fuzz::Outcome run_rpcs(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  raise_loss(options);
  calm_down(options);
  fuzz::FaultPhase phase(options, outcome);
  World world(options, outcome, phase);
  sim::SimCluster cluster(fuzz::simulation_of(options, 12 * options.recovery_limit));
  world.cluster = &cluster;
  phase.attach(cluster);
  if (options.events) cluster.record_events(&outcome.recorded);
  try {
    cluster.run([&](Env& env) { run_node(world, env); });
    world.check();
  } catch (const Error& error) {
    world.violation("liveness", std::string(error.what()).substr(0, 200));
  }
  fuzz::fill_outcome(outcome, cluster);
  return outcome;
}

}  // namespace

fuzz::Scenario rpc_scenario() {
  return {"erpc",
          "eRPC: requests of all sizes between endpoints that die and come back",
          run_rpcs,
          {kBugNames.begin(), kBugNames.end()},
          {kPresetNames.begin(), kPresetNames.end()},
          kFaultsOfRpc,
          {"erpc/answer_again",
           "erpc/answer_of_older_request",
           "erpc/answer_out_of_order",
           "erpc/answer_without_client",
           "erpc/backlog",
           "erpc/checked/completeness",
           "erpc/checked/credits",
           "erpc/checked/false_death",
           "erpc/checked/lies",
           "erpc/checked/malformed",
           "erpc/checked/session_left",
           "erpc/checked/wrong_session",
           "erpc/client_silent",
           "erpc/connect_again",
           "erpc/connect_refused",
           "erpc/ended_in_wheel",
           "erpc/management_of_older_endpoint",
           "erpc/no_credits",
           "erpc/no_handler",
           "erpc/older_request",
           "erpc/packet_again",
           "erpc/request_out_of_order",
           "erpc/reset",
           "erpc/response_request_out_of_order",
           "erpc/response_too_long",
           "erpc/response_while_in_wheel",
           "erpc/retransmission",
           "erpc/session_lost",
           "erpc/timeout_in_wheel",
           "erpc/unknown_session"},
          5,
          false};
}

}  // namespace pyrdma::erpc
