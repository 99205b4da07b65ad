// Histories of the ordered store with scans are those of one map, under drawn faults. Each
// deliberate bug of the store is found.
#include <gtest/gtest.h>

#include <string>

#include "fuzz/small_test.h"
#include "systems/erpc/ordered_store/ordered_store.h"
#include "systems/system.h"

namespace pyrdma::erpc {
namespace {

const std::uint64_t kMapSeeds = (fuzz::kSlowed ? 40 : 600) * fuzz::search_factor();

const fuzz::Scenario& stores() { return fuzz::scenario_named(systems::scenarios(), "erpc_store"); }

fuzz::Options drawn_store(std::uint64_t seed) {
  fuzz::Options options = fuzz::small_options(seed, {2, 60, 120, true});
  options.faults = fuzz::limited(stores(), options.faults);
  return options;
}

TEST(ErpcStoreFuzz, HistoriesWithScansAreThoseOfAMap) {
  if (const std::string problem = ordered_store_problem(); !problem.empty())
    GTEST_SKIP() << problem;
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= kMapSeeds; ++seed) {
    const fuzz::Options options = drawn_store(seed);
    const fuzz::Outcome outcome = run(stores(), options);
    ASSERT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    if (seed % 20 == 0) {
      EXPECT_EQ(outcome.fingerprint, run(stores(), options).fingerprint) << "seed " << seed;
    }
    sums.add(outcome);
  }
  EXPECT_GT(sums.ok, kMapSeeds * 60);
  EXPECT_GT(sums.checked, sums.ok);
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_LE(sums.undecided, kMapSeeds / 50);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  for (const Fault fault : stores().faults())
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : stores().branches)
    EXPECT_GE(sums.branches.at(branch), 1U) << branch;
}

TEST(ErpcStoreFuzz, EachBugIsFound) {
  if (const std::string problem = ordered_store_problem(); !problem.empty())
    GTEST_SKIP() << problem;
  for (const std::string_view bug : stores().mutations) {
    std::uint64_t found = 0;
    for (std::uint64_t seed = 1; seed <= 60 && found == 0; ++seed) {
      fuzz::Options options = drawn_store(seed);
      options.mutation = bug;
      if (!run(stores(), options).violations.empty()) found = seed;
    }
    EXPECT_NE(found, 0U) << bug;
  }
}

}  // namespace
}  // namespace pyrdma::erpc
