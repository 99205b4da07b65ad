// Stores under drawn faults are linearizable. Without the fence of an update late placement breaks
// this (LOCO, section 7.2).
#include <gtest/gtest.h>

#include "fuzz/small_test.h"
#include "systems/system.h"

namespace pyrdma::loco {
namespace {

const std::uint64_t kStoreSeeds = (fuzz::kSlowed ? 40 : 200) * fuzz::search_factor();

class StoreFuzz : public testing::TestWithParam<const char*> {
 protected:
  const fuzz::Scenario& scenario() const {
    return fuzz::scenario_named(systems::scenarios(), GetParam());
  }
  static fuzz::Options drawn(std::uint64_t seed) {
    return fuzz::small_options(seed, {3, 600, 600, false});
  }
};

TEST_P(StoreFuzz, HistoriesAreLinearizable) {
  std::uint64_t checked = 0;
  for (std::uint64_t seed = 1; seed <= kStoreSeeds; ++seed) {
    const fuzz::Outcome outcome = run(scenario(), drawn(seed));
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    checked += outcome.checked;
  }
  EXPECT_GT(checked, kStoreSeeds * 500);
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
    for (const fuzz::Violation& violation : weak.violations) EXPECT_EQ(violation.kind, "kv");
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
  for (const auto& [seed, drawn] : {std::pair(1U, "best"), std::pair(2U, "paper")}) {
    EXPECT_NE(fingerprint(seed, "best"), fingerprint(seed, "paper"));
    EXPECT_EQ(fingerprint(seed, ""), fingerprint(seed, drawn));
  }
}

const auto kStores = testing::Values("loco_store", "loco_sherman");
const auto kNameOfStore = [](const auto& param) { return std::string(param.param); };
INSTANTIATE_TEST_SUITE_P(All, StoreFuzz, kStores, kNameOfStore);
INSTANTIATE_TEST_SUITE_P(All, StoreBugs, kStores, kNameOfStore);

}  // namespace
}  // namespace pyrdma::loco
