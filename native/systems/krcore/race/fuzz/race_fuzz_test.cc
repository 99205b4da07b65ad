// The table keeps its properties under drawn faults. Each deliberate bug is found.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/krcore/race/bugs.h"
#include "systems/krcore/race/fuzz/race_scenario.h"

namespace pyrdma::krcore::race {
namespace {

const std::uint64_t kRaceSeeds = (fuzz::kSlowed ? 20 : 2000) * fuzz::search_factor();

const fuzz::Scenario& races() {
  static const fuzz::Scenario scenario = race_scenario();
  return scenario;
}

fuzz::Options drawn(std::uint64_t seed) {
  fuzz::Options options = fuzz::small_options(seed, {3, 200, 300, true});
  options.faults = fuzz::limited(races(), options.faults);
  return options;
}

TEST(RaceFuzz, HistoriesAreLinearizableUnderFaults) {
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= kRaceSeeds; ++seed) {
    const fuzz::Options options = drawn(seed);
    const fuzz::Outcome outcome = run(races(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    if (seed % 20 == 0) {
      EXPECT_EQ(outcome.fingerprint, run(races(), options).fingerprint) << "seed " << seed;
    }
    sums.add(outcome);
  }
  EXPECT_GT(sums.ok, kRaceSeeds * 200);
  EXPECT_EQ(sums.undecided, 0U);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kRaceSeeds / 4) << "crashes after 50 operations";
  EXPECT_GT(sums.restarts, kRaceSeeds / 4);
  for (const Fault fault : races().faults())
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : races().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
  for (const auto& [branch, count] : sums.branches)
    RecordProperty(std::string(branch), std::to_string(count));
}

constexpr std::uint64_t kMostSeeds = 200;  // within which a bug is found

class RaceFuzzBugs : public testing::TestWithParam<std::string_view> {};

// RaceFuzz shows that the same seeds are clean without the bug.
TEST_P(RaceFuzzBugs, AreFound) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= kMostSeeds && found == 0; ++seed) {
    fuzz::Options options = drawn(seed);
    options.mutation = GetParam();
    if (!run(races(), options).violations.empty()) found = seed;
  }
  EXPECT_NE(found, 0U) << GetParam();
  RecordProperty("seeds_to_kill", static_cast<int>(found));
}

INSTANTIATE_TEST_SUITE_P(All, RaceFuzzBugs, testing::ValuesIn(kBugNames),
                         [](const auto& each) { return std::string(each.param); });

// A torn block needs a read that lasts, so strong memory has none.
TEST(RaceFuzz, ATornBlockIsFoundInWeakMemoryAlone) {
  std::uint64_t weak = 0;
  const std::uint64_t seeds = fuzz::kSlowed ? 40 : kMostSeeds;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    fuzz::Options options = drawn(seed);
    options.faults = FaultOptions();
    options.mutation = "crc_unchecked";
    options.memory = fabric::sim::MemoryModel::weak();
    weak += !run(races(), options).violations.empty();
    options.memory = fabric::sim::MemoryModel::strong();
    const fuzz::Outcome strong = run(races(), options);
    EXPECT_TRUE(strong.violations.empty()) << "seed " << seed << "\n" << describe(strong);
  }
  EXPECT_GT(weak, 0U);
  RecordProperty("seeds_found", static_cast<int>(weak));
}

}  // namespace
}  // namespace pyrdma::krcore::race
