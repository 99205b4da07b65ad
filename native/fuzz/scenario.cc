#include "fuzz/scenario.h"

#include <algorithm>

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

}  // namespace

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

Outcome run(const Scenario& scenario, const Options& options) {
  check_range("nodes", options.nodes, 2, 32);
  check_range("operations", options.operations, 1, 1'000'000);
  check_name(scenario, "mutation", options.mutation, scenario.mutations);
  check_name(scenario, "preset", options.preset, scenario.presets);
  return scenario.run(options);
}

}  // namespace pyrdma::fuzz
