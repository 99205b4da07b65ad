// Small runs of scenarios. A seed gives their nodes, operations and faults.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <string>

#include "fabric/sim/profile_test.h"
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

// Sanitizers make a run slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PYRDMA_SLOWED
#elif defined(__has_feature)  // Clang
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PYRDMA_SLOWED
#endif
#endif
#ifdef PYRDMA_SLOWED
inline constexpr bool kSlowed = true;
#else
inline constexpr bool kSlowed = false;
#endif

/// Returns the factor on the number of seeds of a run of all tests: PYRDMA_SEARCH, or 1 without it.
inline std::uint64_t search_factor() {
  const char* given = std::getenv("PYRDMA_SEARCH");
  return given == nullptr ? 1 : std::max<std::uint64_t>(1, std::strtoull(given, nullptr, 10));
}

/// The size of a small run.
struct Small {
  NodeId nodes = 2;  // up to two more are drawn
  std::uint32_t operations = 60, operations_more = 120;
  bool sometimes_strong = false;  // strong memory in a quarter of the runs
};

/// Draws nodes, operations and faults from a seed.
inline Options small_options(std::uint64_t seed, const Small& small) {
  Options options;
  Rng rng(seed, -1, "small scenarios");
  options.nodes = small.nodes + static_cast<NodeId>(rng.below(3));
  options.operations =
      small.operations + static_cast<std::uint32_t>(rng.below(small.operations_more));
  options.profile = fabric::sim::test_profile();
  if (small.sometimes_strong && rng.below(4) == 0) {
    options.memory = fabric::sim::MemoryModel::strong();
  }
  options.seed = seed;
  options.faults = FaultOptions::swarm(seed);
  return options;
}

/// The sums over many runs.
struct Sums {
  std::uint64_t runs = 0;
  CheckCounts checks;
  std::uint64_t ok = 0, checked = 0, begun = 0, begun_under_faults = 0, undecided = 0;
  std::uint64_t crashes = 0, late_crashes = 0;  // late: after 50 operations or more
  std::uint64_t reconnects = 0, restarts = 0;
  FaultCounters faults;
  BranchCounts branches;

  void add(const Outcome& outcome) {
    ++runs;
    for (const auto& [check, count] : outcome.checks) {
      checks[check].made += count.made;
      for (const auto& [reason, times] : count.skipped) checks[check].skipped[reason] += times;
    }
    ok += outcome.ok;
    checked += outcome.checked;
    begun += outcome.begun;
    begun_under_faults += outcome.begun_under_faults;
    undecided += outcome.undecided.size();
    crashes += outcome.crashed_after.size();
    late_crashes += static_cast<std::uint64_t>(
        std::ranges::count_if(outcome.crashed_after, [](auto begun) { return begun >= 50; }));
    reconnects += outcome.reconnects;
    restarts += outcome.restarts;
    for (std::size_t i = 0; i < kFaults; ++i) {
      faults.fired[i] += outcome.faults.fired[i];
      faults.reached[i] += outcome.faults.reached[i];
    }
    for (const auto& [branch, count] : outcome.branches) branches[branch] += count;
  }
};

/// Returns a line for each check of the scenario that fewer runs made than its share.
inline std::string checks_too_rare(const Scenario& scenario, const Sums& sums) {
  std::string text;
  for (const auto& [check, least] : scenario.checks) {
    const CheckCount count = sums.checks.contains(check) ? sums.checks.at(check) : CheckCount();
    if (static_cast<double>(count.made) >= least * static_cast<double>(sums.runs)) continue;
    text += std::string(check) + ": made in " + std::to_string(count.made) + " of " +
            std::to_string(sums.runs) + " runs, least share " + std::to_string(least);
    for (const auto& [reason, times] : count.skipped)
      text += "; " + std::to_string(times) + ": " + std::string(reason);
    text += "\n";
  }
  return text;
}

inline std::string describe(const Outcome& outcome) {
  std::string text;
  for (const Violation& violation : outcome.violations) {
    text += violation.kind + ": " + violation.text + "\n";
  }
  return text;
}

}  // namespace pyrdma::fuzz
