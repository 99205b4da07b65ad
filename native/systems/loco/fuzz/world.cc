#include "systems/loco/fuzz/world.h"

#include <algorithm>

#include "fuzz/simulation.h"

namespace pyrdma::loco::scenario {

World::World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults,
             bool locks)
    : options(wanted),
      outcome(result),
      phase(faults),
      locks_alone(locks),
      ended(wanted.nodes),
      died(wanted.nodes),
      pushed(wanted.nodes),
      pulled(wanted.nodes) {
  log(Log::kWords).header.initial = check::Value::integer(0);
}

void World::violation(const char* kind, const std::string& text) {
  outcome.report(kind, cluster->now(), text);
}

bool World::all_ended() const {
  for (NodeId node = 0; node < options.nodes; ++node) {
    if (!ended[node] && !died[node]) return false;
  }
  return true;
}

void World::check() {
  constexpr std::array<std::pair<Log, const char*>, 5> kModels{{{Log::kWords, "counter"},
                                                                {Log::kQueue, "fifo"},
                                                                {Log::kLocks, "mutex"},
                                                                {Log::kBarriers, "barrier"},
                                                                {Log::kStore, "kv"}}};
  for (const auto& [which, model] : kModels)
    fuzz::judge(outcome, options, log(which), model, cluster->now());
  for (const Failure& failure : failures) {
    const std::vector<NodeId>& blamed = failure.error.nodes();
    const bool right = std::ranges::any_of(
        blamed, [&](NodeId node) { return node < options.nodes && died[node]; });
    if (!died[failure.node] && !right) {
      violation("error", "node " + std::to_string(failure.node) + ": " + failure.error.what());
    }
  }
}

}  // namespace pyrdma::loco::scenario
