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

const std::uint64_t kRaceSeeds = (fuzz::kSlowed ? 20 : 200) * fuzz::search_factor();

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
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  if (fuzz::kSlowed) return;
  EXPECT_GT(sums.late_crashes, kRaceSeeds / 4) << "crashes after 50 operations";
  EXPECT_GT(sums.restarts, kRaceSeeds / 4);
  for (const Fault fault : races().faults)
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : races().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
  for (const auto& [branch, count] : sums.branches)
    RecordProperty(std::string(branch), std::to_string(count));
}

TEST(RaceFuzz, DISABLED_One) {
  for (std::uint64_t seed : {273, 1175, 1438}) {
    fuzz::Options options = drawn(seed);
    std::printf("seed %d nodes %d weak %d:", (int)seed, (int)options.nodes,
                (int)options.memory.is_weak());
    for (std::size_t i = 0; i < kFaults; ++i)
      if (options.faults.settings[i].rate > 0)
        std::printf(" %s", std::string(fault_info(static_cast<Fault>(i)).key).c_str());
    std::printf("\n%s", describe(run(races(), options)).c_str());
  }
}

TEST(RaceFuzz, DISABLED_Explore) {
  for (const std::string_view bug : kBugNames) {
    std::uint64_t found = 0, first = 0;
    std::map<std::string, int> kinds;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      fuzz::Options options = drawn(seed);
      options.mutation = bug;
      const fuzz::Outcome outcome = run(races(), options);
      if (outcome.violations.empty()) continue;
      ++found;
      if (first == 0) first = seed;
      ++kinds[outcome.violations[0].kind];
    }
    std::printf("%-24s first %3d found %3d:", std::string(bug).c_str(), (int)first, (int)found);
    for (auto& [k, n] : kinds) std::printf(" %s %d", k.c_str(), n);
    std::printf("\n");
  }
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) sums.add(run(races(), drawn(seed)));
  for (const auto& [branch, count] : sums.branches)
    std::printf("%s %d\n", std::string(branch).c_str(), (int)count);
  std::printf("ok %d begun %d under %d crashes %d restarts %d reconnects %d\n", (int)sums.ok,
              (int)sums.begun, (int)sums.begun_under_faults, (int)sums.crashes, (int)sums.restarts,
              (int)sums.reconnects);
}

}  // namespace
}  // namespace pyrdma::krcore::race
