// LOCO's channels pass under drawn faults. Each deliberate bug is found with the fault that it
// needs, and passes without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "fuzz/small_test.h"
#include "systems/loco/fuzz/crash_times_test.h"
#include "systems/system.h"

namespace pyrdma::loco {
namespace {

const std::uint64_t kLocoSeeds = (fuzz::kSlowed ? 200 : 1000) * fuzz::search_factor();

const fuzz::Scenario& channels() { return fuzz::scenario_named(systems::scenarios(), "loco"); }

fuzz::Options drawn(std::uint64_t seed) { return fuzz::small_options(seed, {2, 100, 300, false}); }

TEST(LocoFuzz, ChannelsKeepTheirPropertiesUnderFaults) {
  fuzz::Sums sums;
  CrashTimes crashes;
  for (std::uint64_t seed = 1; seed <= kLocoSeeds; ++seed) {
    const fuzz::Options options = drawn(seed);
    const fuzz::Outcome outcome = run(channels(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    if (seed % 10 == 0) {
      EXPECT_EQ(outcome.fingerprint, run(channels(), options).fingerprint) << "seed " << seed;
    }
    sums.add(outcome);
    crashes.add(outcome, options);
  }
  EXPECT_GT(sums.ok, kLocoSeeds * 20);
  EXPECT_GT(sums.checked, kLocoSeeds * 20);
  EXPECT_EQ(sums.undecided, 0U);
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kLocoSeeds / 20) << "crashes after 50 operations";
  crashes.expect_spread(kLocoSeeds);
  EXPECT_EQ(fuzz::checks_too_rare(channels(), sums), "");
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  std::vector<Fault> kinds = channels().faults();
  kinds.insert(kinds.end(), {Fault::late_placement, Fault::torn_read, Fault::late_source});
  for (const Fault fault : kinds) {
    if (fault == Fault::torn_crash) continue;  // takes thousands of crashes: FuzzFault has them
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], kLocoSeeds / 100)
        << fault_info(fault).key;
  }
  for (const std::string_view branch : channels().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
}

// The ablation switches `needs` off: strong memory for late placement and torn reads, the fault
// itself for a reader that stops.
struct FoundBug {
  const char* scenario;
  const char* name;
  Fault needs;
  NodeId nodes;  // 0: drawn by the seed
  std::uint32_t operations;
  std::uint64_t seeds;  // number of seeds within which the bug is found
};
constexpr FoundBug kBugs[] = {
    {"loco", "release_without_fence", Fault::late_placement, 0, 600, 20},
    {"loco", "completion_taken_for_placement", Fault::late_placement, 0, 600, 20},
    {"loco", "published_before_placed", Fault::late_placement, 0, 600, 50},
    {"loco", "checksum_of_the_ends", Fault::torn_read, 4, 1200, 50},
    {"loco", "host_adds_by_cpu", Fault::late_placement, 0, 600, 20},
    {"loco_locks", "host_adds_by_cpu", Fault::late_placement, 2, 2000, 20},  // the words of tickets
    {"loco_locks", "release_without_fence", Fault::late_placement, 0, 600, 20},
    {"loco", "tail_is_a_flag", Fault::late_placement, 4, 1200, 50},
    {"loco", "acknowledged_before_copied", Fault::pause, 0, 600, 50},
    {"loco", "unfenced", Fault::late_placement, 0, 600, 50},
};

fuzz::Options options_of(const FoundBug& bug, std::uint64_t seed) {
  fuzz::Options options = drawn(seed);
  options.operations = bug.operations;
  if (bug.nodes != 0) options.nodes = bug.nodes;
  options.faults = FaultOptions();
  if (bug.needs == Fault::pause) options.faults.enable(Fault::pause);
  return options;
}

class LocoFuzzBugs : public testing::TestWithParam<FoundBug> {};

TEST_P(LocoFuzzBugs, AreFoundAndOnlyBecauseOfTheirFault) {
  const FoundBug& bug = GetParam();
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= bug.seeds && found == 0; ++seed) {
    fuzz::Options options = options_of(bug, seed);
    const fuzz::Outcome control =
        run(fuzz::scenario_named(systems::scenarios(), bug.scenario), options);
    EXPECT_TRUE(control.violations.empty()) << "seed " << seed << "\n" << describe(control);
    options.mutation = bug.name;
    if (!run(fuzz::scenario_named(systems::scenarios(), bug.scenario), options).violations.empty())
      found = seed;
  }
  EXPECT_NE(found, 0U) << bug.name;
  RecordProperty("seeds_to_kill", static_cast<int>(found));
  for (std::uint64_t seed = 1; seed <= std::max<std::uint64_t>(found, 20); ++seed) {
    fuzz::Options options = options_of(bug, seed);
    options.mutation = bug.name;
    if (bug.needs == Fault::pause) {
      options.faults = FaultOptions();
    } else {
      options.memory = fabric::sim::MemoryModel::strong();
    }
    fuzz::Outcome ablated = run(fuzz::scenario_named(systems::scenarios(), bug.scenario), options);
    // A fence that is left out ignores reads in flight too, in any memory.
    std::erase_if(ablated.violations, [](const auto& each) { return each.kind == "fence"; });
    EXPECT_TRUE(ablated.violations.empty()) << "seed " << seed << "\n" << describe(ablated);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LocoFuzzBugs, testing::ValuesIn(kBugs), [](const auto& param) {
  return std::string(param.param.scenario) + "_" + param.param.name;
});

}  // namespace
}  // namespace pyrdma::loco
