#include "fuzz/scenario.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/quote.h"
#include "fuzz/fabric/fabric_scenario.h"

namespace pyrdma::fuzz {
namespace {

void check_range(const char* what, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value < least || value > most)
    throw Error(ErrorCode::kInvalidArgument, std::string(what) + " is " + std::to_string(value) +
                                                 "; a scenario allows " + std::to_string(least) +
                                                 " to " + std::to_string(most));
}

void check_name(const Scenario& scenario, const std::string& what, const std::string& name,
                const std::vector<std::string_view>& known) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string names;
  for (const std::string_view each : known) (names += names.empty() ? "" : ", ") += each;
  throw Error(ErrorCode::kInvalidArgument, "unknown " + what + " " + in_quotes(name) + "; the " +
                                               what + "s of " + std::string(scenario.name) +
                                               " are " + (names.empty() ? "none" : names));
}

/// Returns why the scenario cannot have the fault; null if it can.
const FaultsLeftOut* why_not(const Scenario& scenario, Fault fault) {
  const auto found = std::ranges::find_if(scenario.left_out, [fault](const FaultsLeftOut& each) {
    return std::ranges::find(each.faults, fault) != each.faults.end();
  });
  return found == scenario.left_out.end() ? nullptr : &*found;
}

void check_faults(const Scenario& scenario, const Options& options) {
  for (const Fault fault : options.asked) {
    const FaultsLeftOut* const left_out = why_not(scenario, fault);
    const bool is_of_memory = fault_info(fault).draw == FaultDraw::kMemory;
    if (left_out == nullptr && !is_of_memory) continue;
    const std::string_view reason = is_of_memory ? "the memory model has it" : left_out->reason;
    std::string kinds;
    for (const Fault each : scenario.faults())
      (kinds += kinds.empty() ? "" : ", ") += fault_info(each).key;
    throw Error(ErrorCode::kInvalidArgument, "scenario " + std::string(scenario.name) +
                                                 " cannot have the fault " +
                                                 std::string(fault_info(fault).key) + ": " +
                                                 std::string(reason) + "; it can have " + kinds);
  }
}

}  // namespace

FaultsLeftOutList joined(FaultsLeftOutList first, const FaultsLeftOutList& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<Fault> Scenario::faults() const {
  std::vector<Fault> all;
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (fault_info(fault).draw != FaultDraw::kMemory && why_not(*this, fault) == nullptr)
      all.push_back(fault);
  }
  return all;
}

bool Options::keeps(std::uint32_t id) const {
  return !kept || std::ranges::any_of(*kept, [id](const OperationRange& range) {
    return range.first <= id && id <= range.last;
  });
}

void Outcome::report(std::string_view kind, Time now, const std::string& text) {
  if (violations.size() < kMostViolations)
    violations.push_back({std::string(kind), "at " + std::to_string(now) + " ns: " + text});
}

void Outcome::made(std::string_view check) {
  CheckCount& count = checks[check];
  count.made = 1;
  count.skipped.clear();
}

void Outcome::skipped(std::string_view check, std::string_view reason) {
  CheckCount& count = checks[check];
  if (count.made == 0 && count.skipped.empty()) count.skipped[reason] = 1;
}

std::vector<Scenario> shared_scenarios() { return {fabric_scenario()}; }

const Scenario& scenario_named(std::span<const Scenario> all, std::string_view name) {
  std::string known;
  for (const Scenario& scenario : all) {
    if (scenario.name == name) return scenario;
    known += known.empty() ? "" : ", ";
    known += scenario.name;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "unknown scenario " + in_quotes(name) + "; give one of " + known);
}

FaultOptions limited(const Scenario& scenario, FaultOptions drawn) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    if (why_not(scenario, static_cast<Fault>(i)) != nullptr) drawn.settings[i].rate = 0;
  }
  return drawn;
}

Options drawn(const Scenario& scenario, std::uint64_t seed) {
  constexpr double kFewest = 64;
  Rng rng(seed, -1, "swarm");
  Options options;
  options.seed = seed;
  const NodeId most =
      std::max(scenario.fewest_nodes, std::min(scenario.usual_nodes, scenario.most_nodes));
  options.nodes =
      scenario.fewest_nodes + static_cast<NodeId>(rng.below(most - scenario.fewest_nodes + 1));
  options.operations = static_cast<std::uint32_t>(
      kFewest * std::pow(std::max(1.0, scenario.usual_operations / kFewest), rng.uniform()));
  if (rng.below(8) == 0) options.memory = fabric::sim::MemoryModel::strong();
  options.faults = FaultOptions::swarm(seed);
  return options;
}

Outcome run(const Scenario& scenario, const Options& options) {
  check_range("nodes", options.nodes, scenario.fewest_nodes, scenario.most_nodes);
  check_range("operations", options.operations, 1, 1'000'000);
  check_name(scenario, "mutation", options.mutation, scenario.mutations);
  check_name(scenario, "preset", options.preset, scenario.presets);
  check_faults(scenario, options);
  if (options.history && !scenario.has_histories) {
    throw Error(ErrorCode::kInvalidArgument,
                "history: " + std::string(scenario.name) +
                    " records none; checks of its own judge its runs, not a model: "
                    "leave the history out, or take the trace");
  }
  Options possible = options;
  possible.faults = limited(scenario, options.faults);
  Outcome outcome = scenario.run(possible);
  for (const auto* branches : {&scenario.branches, &scenario.rarest})
    for (const std::string_view branch : *branches) outcome.branches[branch] += 0;
  for (const CheckShare& share : scenario.checks)
    outcome.skipped(share.check, "the run ended before it");
  return outcome;
}

}  // namespace pyrdma::fuzz
