// The store keeps its properties under drawn faults. Each deliberate bug is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/tailwind/bugs.h"
#include "systems/tailwind/fuzz/tailwind_scenario.h"

namespace pyrdma::tailwind {
namespace {

const std::uint64_t kStoreSeeds = (fuzz::kSlowed ? 10 : 100) * fuzz::search_factor();

const fuzz::Scenario& stores() {
  static const fuzz::Scenario scenario = store_scenario();
  return scenario;
}

fuzz::Options drawn(std::uint64_t seed) {
  fuzz::Options options = fuzz::small_options(seed, {6, 80, 200, true});
  if (seed % 16 == 8) options.nodes = 2 + static_cast<NodeId>(seed / 16 % 4);
  options.faults = fuzz::limited(stores(), options.faults);
  return options;
}

TEST(TailwindFuzz, StoresKeepTheirPropertiesUnderFaults) {
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= kStoreSeeds; ++seed) {
    const fuzz::Options options = drawn(seed);
    const fuzz::Outcome outcome = run(stores(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    if (seed % 20 == 0) {
      EXPECT_EQ(outcome.fingerprint, run(stores(), options).fingerprint) << "seed " << seed;
    }
    sums.add(outcome);
  }
  EXPECT_GT(sums.ok, kStoreSeeds * 100);
  EXPECT_EQ(sums.undecided, 0U);
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kStoreSeeds / 2) << "crashes after 50 operations";
  EXPECT_GT(sums.restarts, kStoreSeeds);
  // Too few seeds for the counts below.
  if (fuzz::kSlowed || fuzz::search_factor() == 1) return;
  for (const Fault fault : stores().faults)
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : stores().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
}

}  // namespace
}  // namespace pyrdma::tailwind
