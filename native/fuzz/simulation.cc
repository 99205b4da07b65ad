#include "fuzz/simulation.h"

#include <algorithm>
#include <string>

#include "check/check.h"
#include "check/history_json.h"

namespace pyrdma::fuzz {

namespace {

constexpr Time kSlowOperation = 100 * kMicrosecond;  // those that are left when the faults end

}  // namespace

void draw_end_of_faults(Options& options, Time least, Time range) {
  FaultOptions& faults = options.faults;
  if (faults.heal_at == kForever) {
    Rng rng(options.seed, -1, "fuzz heal");
    faults.heal_at = least + static_cast<Time>(rng.below(static_cast<std::uint64_t>(range)));
  }
  for (FaultOptions::Setting& setting : faults.settings) {
    if (setting.windows == 0) continue;
    setting.rate = setting.windows * static_cast<double>(kMillisecond) /
                   static_cast<double>(std::max<Time>(1, faults.heal_at));
    setting.windows = 0;
  }
}

fabric::sim::SimOptions simulation_of(const Options& options, Time slack) {
  fabric::sim::SimOptions simulation;
  simulation.nodes = options.nodes;
  simulation.profile = options.profile;
  simulation.seed = options.seed;
  simulation.memory = options.memory;
  simulation.faults = options.faults;
  simulation.trace = options.trace;
  simulation.timeline = options.timeline;
  simulation.time_limit = options.faults.heal_at + slack + options.operations * kSlowOperation;
  return simulation;
}

void judge(Outcome& outcome, const Options& options, const check::History& history,
           const char* model, Time now) {
  if (history.events().empty()) return outcome.skipped(model, "no operation");
  if (options.history) {
    check::History kept = history;
    kept.header.seed = options.seed;
    kept.header.model = model;
    outcome.histories.emplace_back(model, check::to_json(kept));
  }
  check::SearchLimits limits;
  limits.configurations = 1'000'000;  // about 2 s
  const check::Verdict verdict = check::check_history(history, model, limits);
  if (verdict.answer == check::Answer::kUnknown) {
    outcome.undecided.emplace_back(model);
    return outcome.skipped(model, "the checker gave up");
  }
  outcome.made(model);
  outcome.checked += verdict.operations;
  if (verdict.answer == check::Answer::kNo) outcome.report(model, now, verdict.text);
}

void fill_outcome(Outcome& outcome, fabric::sim::SimCluster& cluster) {
  outcome.fingerprint = cluster.fingerprint();
  outcome.virtual_ns = cluster.now();
  outcome.events = cluster.events();
  outcome.faults = cluster.fault_counters();
  outcome.branches = cluster.branches();
  outcome.trace = cluster.trace();
  outcome.timeline = cluster.stop_timeline();
}

}  // namespace pyrdma::fuzz
