#include <pybind11/stl.h>

#include "base/error.h"
#include "bindings/bind.h"
#include "fuzz/scenario.h"

namespace pyrdma::bindings {

namespace {

namespace py = pybind11;

using namespace py::literals;
using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
using TimelineRange = std::tuple<Picos, Picos, std::uint64_t>;

/// Returns the kinds that the user named.
std::vector<Fault> asked_of(const std::optional<std::map<std::string, double>>& given,
                            const std::optional<std::vector<std::string>>& kinds) {
  std::vector<Fault> asked;
  if (given) {
    const FaultOptions faults = FaultOptions::from_values(*given);
    for (std::size_t i = 0; i < kFaults; ++i)
      if (faults.settings[i].rate > 0) asked.push_back(static_cast<Fault>(i));
  }
  if (kinds)
    for (const std::string& kind : *kinds) asked.push_back(fault_named(kind));
  return asked;
}

/// Puts the settings that the user gave in place of the drawn ones.
FaultOptions faults_of(const FaultOptions& drawn,
                       const std::optional<std::map<std::string, double>>& given,
                       const std::optional<std::vector<std::string>>& kinds) {
  FaultOptions faults = given ? FaultOptions::from_values(*given) : drawn;
  if (!kinds) return faults;
  std::array<bool, kFaults> kept{};
  for (const std::string& kind : *kinds) kept[static_cast<std::size_t>(fault_named(kind))] = true;
  for (std::size_t i = 0; i < kFaults; ++i)
    if (!kept[i]) faults.settings[i].rate = 0;
  return faults;
}

py::dict fault_counts(const std::array<std::uint64_t, kFaults>& counts) {
  py::dict by_kind;
  for (std::size_t i = 0; i < kFaults; ++i)
    if (counts[i] > 0)
      by_kind[py::str(std::string(fault_info(static_cast<Fault>(i)).key))] = counts[i];
  return by_kind;
}

py::list kinds_on(const FaultOptions& faults) {
  py::list on;
  for (std::size_t i = 0; i < kFaults; ++i)
    if (faults.settings[i].rate > 0) on.append(std::string(fault_info(static_cast<Fault>(i)).key));
  return on;
}

py::dict run_seed(const std::vector<fuzz::Scenario>& scenarios, const std::string& system,
                  std::uint64_t seed, const std::map<std::string, double>& profile,
                  std::optional<std::uint32_t> nodes, std::optional<std::uint32_t> operations,
                  std::optional<bool> weak,
                  const std::optional<std::map<std::string, double>>& faults,
                  const std::optional<std::vector<std::string>>& kinds,
                  const std::optional<Ranges>& kept, const std::string& mutation,
                  const std::string& preset, bool trace, bool history, bool events,
                  const std::optional<TimelineRange>& timeline) {
  fuzz::Outcome outcome;
  fuzz::Options options;
  {
    const py::gil_scoped_release release;
    const fuzz::Scenario& scenario = fuzz::scenario_named(scenarios, system);
    options = fuzz::drawn(scenario, seed);
    if (nodes) options.nodes = *nodes;
    if (operations) options.operations = *operations;
    if (weak)
      options.memory =
          *weak ? fabric::sim::MemoryModel::weak() : fabric::sim::MemoryModel::strong();
    options.profile = fabric::sim::SimProfile::from_values(profile);
    options.faults = faults_of(options.faults, faults, kinds);
    options.asked = asked_of(faults, kinds);
    options.mutation = mutation;
    options.preset = preset;
    options.trace = trace;
    options.history = history;
    options.events = events;
    if (timeline) {
      const auto& [from, to, most_events] = *timeline;
      options.timeline = {from, to, most_events};
    }
    if (kept) {
      options.kept.emplace();
      for (const auto& [first, last] : *kept) options.kept->push_back({first, last});
    }
    outcome = fuzz::run(scenario, options);
    options.faults = fuzz::limited(scenario, options.faults);
  }
  py::list violations, recorded;
  py::dict checks;
  for (const auto& [check, count] : outcome.checks)
    checks[py::str(std::string(check))] =
        count.made > 0 ? "" : std::string(count.skipped.begin()->first);
  py::dict branches;
  for (const auto& [branch, count] : outcome.branches)
    branches[py::str(std::string(branch))] = count;
  for (const fuzz::Violation& violation : outcome.violations)
    violations.append(py::make_tuple(violation.kind, violation.text));
  for (const SimEventRecord& event : outcome.recorded)
    recorded.append(py::make_tuple(event.time, event.fingerprint, event.what));
  return py::dict(
      "seed"_a = seed, "nodes"_a = options.nodes, "operations"_a = options.operations,
      "weak"_a = options.memory.is_weak(), "faults"_a = options.faults.values(),
      "checks"_a = checks, "ended"_a = outcome.ended, "met_fault"_a = outcome.met_fault,
      "fingerprint"_a = outcome.fingerprint, "virtual_ns"_a = outcome.virtual_ns,
      "events"_a = outcome.events, "ok"_a = outcome.ok, "fail"_a = outcome.fail,
      "info"_a = outcome.info, "checked"_a = outcome.checked, "kinds"_a = kinds_on(options.faults),
      "fired"_a = fault_counts(outcome.faults.fired),
      "reached"_a = fault_counts(outcome.faults.reached), "reconnects"_a = outcome.reconnects,
      "restarts"_a = outcome.restarts, "torn_reads"_a = outcome.torn_reads,
      "corrupt_datagrams"_a = outcome.corrupt_datagrams, "violations"_a = violations,
      "branches"_a = branches, "begun"_a = outcome.begun,
      "begun_under_faults"_a = outcome.begun_under_faults,
      "crashed_after"_a = outcome.crashed_after, "undecided"_a = outcome.undecided,
      "trace"_a = outcome.trace, "histories"_a = outcome.histories, "recorded"_a = recorded,
      "timeline"_a = outcome.timeline);
}

std::vector<std::string> texts(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

py::list kinds_of(const fuzz::Scenario& scenario) {
  FaultOptions all;
  for (const Fault fault : scenario.faults()) all[fault].rate = 1;
  return kinds_on(all);
}

std::vector<std::string> branches_of(const fuzz::Scenario& scenario) {
  std::vector<std::string> branches = texts(scenario.branches);
  branches.insert(branches.end(), scenario.rarest.begin(), scenario.rarest.end());
  return branches;
}

py::dict shares_of(const fuzz::Scenario& scenario) {
  py::dict shares;
  for (const auto& [check, least] : scenario.checks) shares[py::str(std::string(check))] = least;
  return shares;
}

py::list list_scenarios(const std::vector<fuzz::Scenario>& scenarios) {
  py::list all;
  for (const fuzz::Scenario& scenario : scenarios)
    all.append(py::dict(
        "name"_a = std::string(scenario.name), "title"_a = std::string(scenario.title),
        "mutations"_a = texts(scenario.mutations), "presets"_a = texts(scenario.presets),
        "faults"_a = kinds_of(scenario), "branches"_a = branches_of(scenario),
        "fewest_nodes"_a = scenario.fewest_nodes, "most_nodes"_a = scenario.most_nodes,
        "has_histories"_a = scenario.has_histories, "checks"_a = shares_of(scenario),
        "usual_nodes"_a = scenario.usual_nodes, "usual_operations"_a = scenario.usual_operations));
  return all;
}

}  // namespace

void bind_fuzz(py::module_& module, const std::vector<fuzz::Scenario>& scenarios) {
  py::module_ fuzz_module = module.def_submodule("fuzz", "Scenarios run from seeds.");
  fuzz_module.def("scenarios", with_first(&list_scenarios, scenarios),
                  "Return what each scenario has, as pyrdma.fuzz.systems() says.");
  fuzz_module.def(
      "run", with_first(&run_seed, scenarios), py::arg("system"), py::arg("seed"),
      py::arg("profile"), py::arg("nodes") = py::none(), py::arg("operations") = py::none(),
      py::arg("weak") = py::none(), py::arg("faults") = py::none(), py::arg("kinds") = py::none(),
      py::arg("kept") = py::none(), py::arg("mutation") = "", py::arg("preset") = "",
      py::arg("trace") = false, py::arg("history") = false, py::arg("events") = false,
      py::arg("timeline") = py::none(), "Run one seed; return counters, events and violations.");
}

}  // namespace pyrdma::bindings
