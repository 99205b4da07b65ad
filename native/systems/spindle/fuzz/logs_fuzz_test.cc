// Logged topics keep their properties while hosts lose power. Each deliberate bug is found.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "fuzz/small_test.h"
#include "systems/spindle/bugs.h"
#include "systems/system.h"

namespace pyrdma::spindle {
namespace {

const std::uint64_t kSeeds = (fuzz::kSlowed ? 20 : 800) * fuzz::search_factor();

const fuzz::Scenario& logs() { return fuzz::scenario_named(systems::scenarios(), "spindle_logs"); }

// Half of the seeds have no other faults than power failures and torn writes.
fuzz::Options drawn_logs(std::uint64_t seed) {
  fuzz::Options options = fuzz::small_options(seed, {3, 60, 120, true});
  if (seed % 4 != 1) options.nodes = 3;
  options.faults = fuzz::limited(logs(), options.faults);
  if (seed % 2 == 0) options.faults = FaultOptions();
  if (seed % 4 == 0) options.faults[Fault::disk_torn].rate = 0.5;
  if (seed % 4 != 1) options.faults[Fault::disk_slow].rate = 0.3;
  return options;
}

// In so many of a hundred seeds a check has something to judge, and a rare thing happens.
const std::map<std::string_view, double> kShares{
    {"spindle/judged_start", 80}, {"spindle/judged_restart", 75}, {"spindle/judged_agreed", 90},
    {"spindle/judged_join", 35},  {"spindle/judged_client", 90},  {"spindle/judged_end", 100},
    {"spindle/torn_log", 18},     {"spindle/joined_by_log", 40},  {"spindle/log_refused", 5},
    {"spindle/failed_opened", 30}};

TEST(SpindleLogsFuzz, LogsSurvivePowerFailures) {
  fuzz::Sums sums;
  std::map<std::string_view, double> seeds;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const fuzz::Outcome outcome = run(logs(), drawn_logs(seed));
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    sums.add(outcome);
    for (const auto& [branch, count] : outcome.branches) seeds[branch] += count != 0 ? 1 : 0;
  }
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  EXPECT_EQ(fuzz::checks_too_rare(logs(), sums), "");
  EXPECT_GT(sums.restarts, 5 * kSeeds);
  EXPECT_GT(sums.checked, 100 * kSeeds) << "durable samples";
  for (const std::string_view branch : logs().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
  for (const auto& [branch, share] : kShares)
    EXPECT_GE(100 * seeds[branch], share * static_cast<double>(kSeeds)) << branch;
}

class SpindleLogsFuzzBugs : public testing::TestWithParam<std::string_view> {};

TEST_P(SpindleLogsFuzzBugs, AreFound) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 400 && found == 0; ++seed) {
    fuzz::Options options = drawn_logs(seed);
    options.mutation = GetParam();
    if (!run(logs(), options).violations.empty()) found = seed;
  }
  EXPECT_NE(found, 0U);
  RecordProperty("seeds_to_kill", static_cast<int>(found));
}

INSTANTIATE_TEST_SUITE_P(All, SpindleLogsFuzzBugs, testing::ValuesIn(kLogBugNames),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace pyrdma::spindle
