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
  check_failures();
}

// A node that waits for a dead one holds up those that wait for it, until its own wait ends.
void World::check_failures() {
  std::vector<bool> gone = died;
  const auto is_right = [&](const Failure& failure) {
    return died[failure.node] || std::ranges::any_of(failure.error.nodes(), [&](NodeId node) {
             return node < options.nodes && gone[node];
           });
  };
  for (std::size_t round = 0; round < failures.size(); ++round) {
    for (const Failure& failure : failures)
      if (is_right(failure)) gone[failure.node] = true;
  }
  for (const Failure& failure : failures) {
    if (!is_right(failure))
      violation("error", "node " + std::to_string(failure.node) + ": " + failure.error.what());
  }
}

}  // namespace pyrdma::loco::scenario
