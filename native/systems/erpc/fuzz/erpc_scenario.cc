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

const fuzz::FaultsLeftOutList kLeftOutOfRpc =
    fuzz::joined(kLeftOutOfRpcs, {{fuzz::kDiskFaults, "RPCs store nothing"}});

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

// A network may lose up to half of all packets. At the rates of the table hardly any packet comes
// so late that its session or request is over.
void raise_rates(fuzz::Options& options) {
  Rng rng(options.seed, -1, "fuzz erpc loss");
  double& rate = options.faults[Fault::loss].rate;
  if (rate > 0 && rate < 0.1 && rng.below(3) == 0) rate = 0.5 * rng.uniform();
  for (const Fault fault : {Fault::duplicate, Fault::reorder}) {
    double& often = options.faults[fault].rate;
    if (rng.below(3) == 0 && options.asked.empty()) often = std::min(20 * often, 0.2);
  }
}

// Leaves the faults out that would end a session, unless the user has named them.
void calm_down(fuzz::Options& options) {
  const scenario::Shape shape = scenario::draw_shape(options);
  if ((!shape.is_steady && !shape.is_calm) || !options.asked.empty()) return;
  for (const Fault fault : rpc_scenario().faults()) {
    const bool ends_endpoints = fault == Fault::crash || fault == Fault::host_crash ||
                                fault == Fault::battery_crash || fault == Fault::memory_pressure;
    const bool is_harmless =
        std::ranges::find(scenario::kHarmlessFaults, fault) != scenario::kHarmlessFaults.end();
    if (ends_endpoints || (shape.is_calm && !is_harmless)) options.faults[fault].rate = 0;
  }
}

fuzz::Outcome run_rpcs(const fuzz::Options& wanted) {
  fuzz::Outcome outcome;
  fuzz::Options options = wanted;
  fuzz::hasten_control_path(options.profile);
  raise_rates(options);
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
          kLeftOutOfRpc,
          {"erpc/answer_again",
           "erpc/answer_of_older_request",
           "erpc/answer_out_of_order",
           "erpc/answer_without_client",
           "erpc/backlog",
           "erpc/bad_address",
           "erpc/behind_wheel",
           "erpc/client_denies_session",
           "erpc/client_silent",
           "erpc/connect_again",
           "erpc/connect_refused",
           "erpc/ended_in_wheel",
           "erpc/management_of_older_endpoint",
           "erpc/no_credits",
           "erpc/no_handler",
           "erpc/older_endpoint_ended",
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
          8,
          false,
          2,
          {{"completeness", 0.99},
           {"credits", 0.9},
           {"false death", 0.12},
           {"halves", 0.99},
           {"lies", 0.99},
           {"malformed", 0.5},
           {"order", 0.1},
           {"outcomes", 0.99},
           {"session left", 0.99},
           {"wrong session", 0.05}},
          6,
          4000,
          {"erpc/connect_of_older_endpoint"}};
}

}  // namespace pyrdma::erpc
