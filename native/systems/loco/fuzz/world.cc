#include "systems/loco/fuzz/world.h"

#include "fuzz/simulation.h"

namespace pyrdma::loco::scenario {

World::World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults,
             Crashes& drawn_crashes, bool locks)
    : options(wanted),
      outcome(result),
      phase(faults),
      crashes(drawn_crashes),
      locks_alone(locks),
      fates(wanted.nodes),
      processes(static_cast<std::int32_t>(wanted.nodes * kCallers)),
      usable(wanted.nodes),
      pushed(wanted.nodes),
      pulled(wanted.nodes),
      placed(wanted.nodes) {
  log(Log::kWords).header.initial = check::Value::integer(0);
}

std::uint64_t World::operation() {
  const std::uint64_t mark = phase.operation();
  crashes.operation(*cluster, outcome.crashed_after.size());
  return mark;
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
  for (const auto& [which, model] : kModels) {
    if (locks_alone && (which == Log::kQueue || which == Log::kStore)) continue;
    fuzz::judge(outcome, options, log(which), model, cluster->now());
  }
  for (const std::string& error : fates.wrong_errors()) violation("error", error);
  if (finished == options.nodes || looked != 0) outcome.made("end");
  if (looked != 0) outcome.made("after a crash");
  outcome.skipped("end", fates.why_nobody_looked("an error"));
  outcome.skipped("after a crash", fates.why_nobody_looked("no node died"));
}

}  // namespace pyrdma::loco::scenario
