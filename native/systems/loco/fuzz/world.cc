#include "systems/loco/fuzz/world.h"

#include <algorithm>

#include "check/check.h"

namespace pyrdma::loco::scenario {

World::World(const fuzz::Options& wanted, fuzz::Outcome& result, bool locks)
    : options(wanted),
      outcome(result),
      locks_alone(locks),
      ended(wanted.nodes),
      died(wanted.nodes),
      pushed(wanted.nodes),
      pulled(wanted.nodes) {
  log(Log::kWords).header.initial = check::Value::integer(0);
}

void World::violation(const char* kind, const std::string& text) {
  if (outcome.violations.size() >= fuzz::kMostViolations) return;
  outcome.violations.push_back({kind, "at " + std::to_string(cluster->now()) + " ns: " + text});
}

bool World::keeps(std::uint32_t id) const {
  return !options.kept || std::any_of(options.kept->begin(), options.kept->end(),
                                      [&](const auto& r) { return r.first <= id && id <= r.last; });
}

bool World::all_ended() const {
  for (NodeId node = 0; node < options.nodes; ++node) {
    if (!ended[node] && !died[node]) return false;
  }
  return true;
}

void World::failed(NodeId node, const std::string& text) { errors.emplace_back(node, text); }

void World::check() {
  constexpr std::array<std::pair<Log, const char*>, 5> kModels{{{Log::kWords, "counter"},
                                                                {Log::kQueue, "fifo"},
                                                                {Log::kLocks, "mutex"},
                                                                {Log::kBarriers, "barrier"},
                                                                {Log::kStore, "kv"}}};
  check::SearchLimits limits;
  limits.configurations = 100'000;
  for (const auto& [which, model] : kModels) {
    if (log(which).events().empty()) continue;
    const check::Verdict verdict = check::check_history(log(which), model, limits);
    outcome.checked += verdict.operations;
    if (verdict.answer == check::Answer::kNo) violation(model, verdict.text);
  }
  for (const auto& [node, text] : errors) {
    if (died[node]) continue;
    bool named = false;
    for (NodeId dead = 0; dead < options.nodes; ++dead) {
      for (const char before : {' ', '/'}) {
        const std::size_t at = text.find(before + std::to_string(dead));
        if (!died[dead] || at == std::string::npos) continue;
        named = true;
      }
    }
    if (!named) violation("error", "node " + std::to_string(node) + ": " + text);
  }
}

}  // namespace pyrdma::loco::scenario
