// Runs a scenario from many seeds with one mutant:
//   MUTANT SCENARIO FIRST_SEED SEEDS STOP [nodes=N] [operations=N] [preset=P] [kinds=K,...]
//   [memory=strong]
// MUTANT is a number of the list; 0 runs the correct code. Prints a line per seed: the seed and the
// kinds of its violations, separated by tabs. Their texts go to the standard error. Ends early
// after STOP seeds with a violation.
//   names SYSTEM
// Prints the names of the scenarios of a system.
#include "fuzz/scenario.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "chosen_mutant.h"
#include "fabric/sim/profile_test.h"
#include "systems/system.h"

namespace {

using pyrdma::Error;
using pyrdma::Fault;
namespace fuzz = pyrdma::fuzz;

std::uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

// Exactly these kinds, ten times as often as a random run has them.
pyrdma::FaultOptions faults_of(const std::string& names) {
  pyrdma::FaultOptions faults;
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    faults.enable(pyrdma::fault_named(names.substr(at, end - at)), 10);
    at = end + 1;
  }
  return faults;
}

// What the seed draws, with the given values in place of the drawn ones.
fuzz::Options options_of(const fuzz::Scenario& scenario, std::uint64_t seed,
                         const std::vector<std::string>& given) {
  fuzz::Options options = fuzz::drawn(scenario, seed);
  options.profile = pyrdma::fabric::sim::test_profile();
  for (const std::string& each : given) {
    const std::size_t at = each.find('=');
    const std::string key = each.substr(0, at), value = each.substr(at + 1);
    if (key == "nodes") {
      options.nodes = static_cast<pyrdma::NodeId>(number(value));
    } else if (key == "operations") {
      options.operations = static_cast<std::uint32_t>(number(value));
    } else if (key == "preset") {
      options.preset = value;
    } else if (key == "kinds") {
      options.faults = faults_of(value);
    } else if (key == "memory" && value == "strong") {
      options.memory = pyrdma::fabric::sim::MemoryModel::strong();
    } else {
      throw Error(pyrdma::ErrorCode::kInvalidArgument,
                  "option '" + each + "'; give nodes, operations, preset, kinds or memory=strong");
    }
  }
  return options;
}

int print_names(const std::string& name) {
  for (const pyrdma::systems::System& system : pyrdma::systems::all()) {
    if (system.name != name) continue;
    for (const fuzz::Scenario& scenario : system.scenarios) {
      std::printf("%s\n", std::string(scenario.name).c_str());
    }
  }
  return 0;
}

// A mutant that hangs is ended by a signal: after so much CPU time, which does not depend on the
// load of the machine, or, if it waits without the CPU, after so much time.
void limit_next_seed() {
  itimerval limit{};
  limit.it_value.tv_sec = 10;
  setitimer(ITIMER_PROF, &limit, nullptr);
  alarm(600);
}

}  // namespace

int main(int count, char** words) {
  if (count == 3 && words[1] == std::string("names")) return print_names(words[2]);
  if (count < 6) return 2;
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  pyrdma::mutants::chosen = static_cast<unsigned>(number(words[1]));
  const std::uint64_t first = number(words[3]), end = first + number(words[4]);
  std::uint64_t left = number(words[5]);
  const std::vector<std::string> given(words + 6, words + count);
  try {
    const fuzz::Scenario& scenario = fuzz::scenario_named(pyrdma::systems::scenarios(), words[2]);
    for (std::uint64_t seed = first; seed < end && left > 0; ++seed) {
      limit_next_seed();
      const fuzz::Options options = options_of(scenario, seed, given);
      fuzz::Outcome outcome;
      try {
        outcome = run(scenario, options);
      } catch (const Error& error) {
        outcome.violations.push_back({"error", error.what()});
      }
      std::set<std::string> kinds;
      for (const auto& [kind, text] : outcome.violations) {
        kinds.insert(kind);
        std::fprintf(stderr, "%s: %s\n", kind.c_str(), text.c_str());
      }
      std::printf("%llu", static_cast<unsigned long long>(seed));
      for (const std::string& kind : kinds) std::printf("\t%s", kind.c_str());
      std::printf("\n");
      std::fflush(stdout);
      left -= kinds.empty() ? 0 : 1;
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
