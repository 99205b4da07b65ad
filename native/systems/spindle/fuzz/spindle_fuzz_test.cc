// Groups keep their properties under drawn faults. Each deliberate bug is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/spindle/bugs.h"
#include "systems/system.h"

namespace pyrdma::spindle {
namespace {

const std::uint64_t kGroupSeeds = (fuzz::kSlowed ? 60 : 2000) * fuzz::search_factor();

const fuzz::Scenario& groups() { return fuzz::scenario_named(systems::scenarios(), "spindle"); }

fuzz::Options drawn(std::uint64_t seed) {
  fuzz::Options options = fuzz::small_options(seed, {3, 80, 300, true});
  if (seed % 16 == 0) options.nodes = 7;
  if (seed % 16 == 8) options.nodes = 2;
  options.faults = fuzz::limited(groups(), options.faults);
  return options;
}

TEST(SpindleFuzz, GroupsKeepTheirPropertiesUnderFaults) {
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= kGroupSeeds; ++seed) {
    const fuzz::Options options = drawn(seed);
    const fuzz::Outcome outcome = run(groups(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    if (seed % 20 == 0) {
      EXPECT_EQ(outcome.fingerprint, run(groups(), options).fingerprint) << "seed " << seed;
    }
    sums.add(outcome);
  }
  EXPECT_GT(sums.ok, kGroupSeeds * 100);
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kGroupSeeds / 20) << "crashes after 50 operations";
  EXPECT_GT(sums.restarts, kGroupSeeds / 20);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  for (const Fault fault : groups().faults())
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : groups().branches)
    EXPECT_GE(sums.branches.at(branch), 1U) << branch;
}

// A founder lost another one before the third one had reached it. It waited for ever for the
// others, which had gone on.
TEST(SpindleFuzz, AFounderThatIsLeftBehindEnds) {
  const fuzz::Outcome outcome = run(groups(), drawn(3798));
  EXPECT_TRUE(outcome.violations.empty()) << describe(outcome);
}

// Sessions of dead nodes took all places of a control channel.
TEST(SpindleFuzz, AControlChannelWithoutPlacesGoesOn) {
  const fuzz::Outcome outcome = run(groups(), drawn(4862));
  EXPECT_TRUE(outcome.violations.empty()) << describe(outcome);
}

/// What a bug does not show without.
enum class Needs : std::uint8_t { kNothing, kWeakMemory, kViewChanges, kFaults };

/// The faults in which a bug is looked for.
struct FoundBug {
  const char* name;
  Needs needs;
  std::vector<std::pair<Fault, double>> faults;  // and how often, times the rate of the table
  std::uint64_t seeds;                           // within which it is found
};
const FoundBug kFoundBugs[] = {
    {"slot_reused_early", Needs::kNothing, {}, 10},
    {"delivered_on_receipt", Needs::kNothing, {}, 10},
    {"null_header_trusted", Needs::kNothing, {}, 10},
    {"nulls_endless", Needs::kNothing, {}, 10},
    {"row_unchecked", Needs::kWeakMemory, {{Fault::crash, 3}}, 100},
    {"receives_after_wedge", Needs::kViewChanges, {{Fault::crash, 3}}, 20},
    {"pending_dropped", Needs::kViewChanges, {{Fault::crash, 3}}, 60},
    {"resent_twice", Needs::kViewChanges, {{Fault::crash, 3}}, 20},
    {"minority_installs", Needs::kFaults, {{Fault::partition, 5}, {Fault::isolation, 5}}, 60},
    {"joiners_forgotten", Needs::kViewChanges, {{Fault::crash, 5}}, 100},
};

fuzz::Options options_of_bug(const FoundBug& bug, std::uint64_t seed) {
  fuzz::Options options = drawn(seed);
  options.faults = FaultOptions();
  for (const auto& [fault, factor] : bug.faults) options.faults.enable(fault, factor);
  return options;
}

/// The same without what the bug needs. Two nodes without faults stay in their first view.
fuzz::Options options_of_survivor(const FoundBug& bug, std::uint64_t seed) {
  fuzz::Options options = options_of_bug(bug, seed);
  options.mutation = bug.name;
  if (bug.needs == Needs::kWeakMemory) {
    options.memory = fabric::sim::MemoryModel::strong();
  } else {
    options.faults = FaultOptions();
    if (bug.needs == Needs::kViewChanges) options.nodes = 2;
  }
  return options;
}

class SpindleFuzzBugs : public testing::TestWithParam<FoundBug> {};

TEST_P(SpindleFuzzBugs, AreFound) {
  const FoundBug& bug = GetParam();
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= bug.seeds && found == 0; ++seed) {
    fuzz::Options options = options_of_bug(bug, seed);
    const fuzz::Outcome control = run(groups(), options);
    EXPECT_TRUE(control.violations.empty()) << "seed " << seed << "\n" << describe(control);
    options.mutation = bug.name;
    if (!run(groups(), options).violations.empty()) found = seed;
  }
  EXPECT_NE(found, 0U) << bug.name;
  RecordProperty("seeds_to_kill", static_cast<int>(found));
  // What the bug needs shows it, not luck.
  for (std::uint64_t seed = 1; seed <= 2 * found && bug.needs != Needs::kNothing; ++seed) {
    const fuzz::Outcome outcome = run(groups(), options_of_survivor(bug, seed));
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpindleFuzzBugs, testing::ValuesIn(kFoundBugs),
                         [](const auto& each) { return std::string(each.param.name); });

// The others are found in the core of the view change (membership_test.cc), by a member that stops
// (views_test.cc), by long messages (multicast_test.cc), and by batches (batch_test.cc).
TEST(SpindleFuzz, EveryBugHasATest) {
  const std::vector<std::string_view> elsewhere{
      "proposal_ignored", "proposal_blended",    "suspicions_unheard", "suspect_heard",
      "trim_not_echoed",  "trim_computed_again", "silence_ignored",    "guard_before_data",
      "echo_uncompared",  "accuser_stays",       "commit_unheard",     "part_batch_waits",
      "leaves_unsent"};
  for (const std::string_view name : kBugNames) {
    EXPECT_TRUE(std::ranges::find(elsewhere, name) != elsewhere.end() ||
                std::ranges::any_of(kFoundBugs, [&](const auto& bug) { return bug.name == name; }))
        << name;
  }
}

}  // namespace
}  // namespace pyrdma::spindle
