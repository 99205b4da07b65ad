#include "systems/loco/fuzz/world.h"

#include "fuzz/simulation.h"

namespace pyrdma::loco::scenario {

World::World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults,
             bool locks)
    : options(wanted),
      outcome(result),
      phase(faults),
      locks_alone(locks),
      fates(wanted.nodes),
      processes(static_cast<std::int32_t>(wanted.nodes * kCallers)),
      usable(wanted.nodes),
      pushed(wanted.nodes),
      pulled(wanted.nodes),
      placed(wanted.nodes) {
  log(Log::kWords).header.initial = check::Value::integer(0);
}

void World::violation(const char* kind, const std::string& text) {
  outcome.report(kind, cluster->now(), text);
}

void World::check() {
  constexpr std::array<std::pair<Log, const char*>, 5> kModels{{{Log::kWords, "counter"},
                                                                {Log::kQueue, "fifo"},
                                                                {Log::kLocks, "mutex"},
                                                                {Log::kBarriers, "barrier"},
                                                                {Log::kStore, "kv"}}};
  for (const auto& [which, model] : kModels)
    fuzz::judge(outcome, options, log(which), model, cluster->now());
  for (const std::string& error : fates.wrong_errors()) violation("error", error);
  const bool crashed = fates.any_dead();
  if (finished == options.nodes || looked != 0) outcome.made("end");
  if (looked != 0) outcome.made("after a crash");
  constexpr const char* kEarly = "a node died before the others were ready";
  outcome.skipped("end", crashed ? kEarly : "an error");
  outcome.skipped("after a crash", crashed ? kEarly : "no node died");
}

}  // namespace pyrdma::loco::scenario
