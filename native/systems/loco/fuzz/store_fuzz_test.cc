// Stores under drawn faults are linearizable. Without the fence of an update late placement breaks
// this (LOCO, section 7.2).
#include <gtest/gtest.h>

#include <string_view>

#include "fuzz/small_test.h"
#include "systems/loco/fuzz/crash_times_test.h"
#include "systems/system.h"

namespace pyrdma::loco {
namespace {

const std::uint64_t kStoreSeeds = (fuzz::kSlowed ? 100 : 600) * fuzz::search_factor();

class StoreFuzz : public testing::TestWithParam<const char*> {
 protected:
  const fuzz::Scenario& scenario() const {
    return fuzz::scenario_named(systems::scenarios(), GetParam());
  }
  static fuzz::Options drawn(std::uint64_t seed) {
    fuzz::Options options = fuzz::small_options(seed, {2, 300, 500, false});
    if (seed % 2 == 0) options.faults.enable(Fault::preemption, 2);  // threads meet at the index
    return options;
  }
};

TEST_P(StoreFuzz, HistoriesAreLinearizable) {
  fuzz::Sums sums;
  CrashTimes crashes;
  for (std::uint64_t seed = 1; seed <= kStoreSeeds; ++seed) {
    const fuzz::Options options = drawn(seed);
    const fuzz::Outcome outcome = run(scenario(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    sums.add(outcome);
    crashes.add(outcome, options);
  }
  EXPECT_GT(sums.checked, kStoreSeeds * 300);
  EXPECT_EQ(sums.undecided, 0U);
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kStoreSeeds / 20) << "crashes after 50 operations";
  crashes.expect_spread(kStoreSeeds);
  EXPECT_EQ(fuzz::checks_too_rare(scenario(), sums), "");
  if (fuzz::kSlowed) return;
  for (const std::string_view branch : scenario().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
}

class StoreBugs : public StoreFuzz {};

TEST_P(StoreBugs, AnUpdateWithoutItsFenceIsFoundInWeakMemoryAlone) {
  const std::uint64_t most = 60 * fuzz::search_factor();
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= most && (found < 2 || seed <= 10); ++seed) {
    fuzz::Options unfenced = drawn(seed);
    unfenced.faults = FaultOptions();
    unfenced.mutation = "unfenced";
    const fuzz::Outcome weak = run(scenario(), unfenced);
    found += !weak.violations.empty();
    for (const fuzz::Violation& violation : weak.violations) {
      // A value that is placed after its slot was filled again leaves the slot torn for ever.
      EXPECT_TRUE(violation.kind == "kv" || violation.kind == "liveness") << violation.text;
    }
    unfenced.memory = fabric::sim::MemoryModel::strong();
    const fuzz::Outcome strong = run(scenario(), unfenced);
    EXPECT_TRUE(strong.violations.empty()) << "seed " << seed << "\n" << describe(strong);
  }
  EXPECT_GT(found, 1U);
  RecordProperty("seeds_found", static_cast<int>(found));
}

TEST(StorePresetsSim, AreChosenOrDrawnBySeed) {
  const fuzz::Scenario& store = fuzz::scenario_named(systems::scenarios(), "loco_store");
  const auto fingerprint = [&](std::uint64_t seed, const char* preset) {
    fuzz::Options options = fuzz::small_options(seed, {3, 60, 60, false});
    options.preset = preset;
    return run(store, options).fingerprint;
  };
  std::uint64_t best = 0;
  constexpr std::uint64_t kSeeds = 16;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::uint64_t drawn = fingerprint(seed, "");
    const bool is_best = drawn == fingerprint(seed, "best");
    EXPECT_NE(is_best, drawn == fingerprint(seed, "paper")) << "seed " << seed;
    best += is_best;
  }
  EXPECT_GE(best, kSeeds / 4);
  EXPECT_LE(best, kSeeds * 3 / 4);
}

// Two nodes lose each other; nobody dies. What was acknowledged stays, and the others go on.
TEST(StoreCutsSim, NoAcknowledgedChangeIsLost) {
  const std::uint64_t most = (fuzz::kSlowed ? 10 : 60) * fuzz::search_factor();
  const fuzz::Scenario& cuts = fuzz::scenario_named(systems::scenarios(), "loco_store_cut");
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= most; ++seed) {
    fuzz::Options options = fuzz::small_options(seed, {3, 100, 300, false});
    options.faults = limited(cuts, options.faults);
    const fuzz::Outcome outcome = run(cuts, options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    sums.add(outcome);
  }
  EXPECT_EQ(sums.undecided, 0U);
  if (fuzz::kSlowed) return;
  for (const std::string_view branch : cuts.branches)
    EXPECT_GE(sums.branches.at(branch), most / 20) << branch;
}

const auto kStores = testing::Values("loco_store", "loco_sherman");
const auto kNameOfStore = [](const auto& param) { return std::string(param.param); };
INSTANTIATE_TEST_SUITE_P(All, StoreFuzz, kStores, kNameOfStore);
INSTANTIATE_TEST_SUITE_P(All, StoreBugs, kStores, kNameOfStore);

}  // namespace
}  // namespace pyrdma::loco
