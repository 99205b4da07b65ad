// Services keep their properties under drawn faults. Each deliberate bug is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/small_test.h"
#include "systems/krcore/bugs.h"
#include "systems/krcore/fuzz/krcore_scenario.h"

namespace pyrdma::krcore {
namespace {

const std::uint64_t kServiceSeeds = (fuzz::kSlowed ? 10 : 2000) * fuzz::search_factor();

/// The scenario with runs of at most so many operations.
fuzz::Scenario services_of(std::uint32_t operations) {
  fuzz::Scenario scenario = service_scenario();
  scenario.usual_operations = operations;
  return scenario;
}

const fuzz::Scenario& services() {
  static const fuzz::Scenario scenario = services_of(500);
  return scenario;
}

fuzz::Options drawn(std::uint64_t seed) {
  fuzz::Options options = fuzz::drawn(services(), seed);
  options.profile = fabric::sim::test_profile();
  // Few writes leave at the moment of a crash.
  if (seed % 4 == 1) {
    options.faults.enable(Fault::crash, 4);
    options.faults[Fault::torn_crash].rate = 1;
  }
  return options;
}

TEST(KrcoreFuzz, ServicesKeepTheirPropertiesUnderFaults) {
  fuzz::Sums sums;
  for (std::uint64_t seed = 1; seed <= kServiceSeeds; ++seed) {
    const fuzz::Options options = drawn(seed);
    const fuzz::Outcome outcome = run(services(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
    if (seed % 20 == 0) {
      EXPECT_EQ(outcome.fingerprint, run(services(), options).fingerprint) << "seed " << seed;
    }
    sums.add(outcome);
  }
  EXPECT_GT(sums.ok, kServiceSeeds * 50);
  EXPECT_EQ(sums.undecided, 0U);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kServiceSeeds / 10) << "crashes after 50 operations";
  EXPECT_EQ(fuzz::checks_too_rare(services(), sums), "");
  for (const Fault fault : services().faults())
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : services().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
}

constexpr std::uint64_t kMostSeeds = 200;  // within which a bug is found

constexpr std::string_view kFoundBugs[] = {
    "no_check",          "count_unpacked_short", "no_wait_for_lease",
    "meta_on_miss_only", "count_off_by_one",     "head_ready_only",
    "send_depth_only",   "stale_meta_kept",      "read_before_receive",
    "strangers_believed"};

class KrcoreFuzzBugs : public testing::TestWithParam<std::string_view> {};

TEST_P(KrcoreFuzzBugs, AreFound) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= kMostSeeds && found == 0; ++seed) {
    fuzz::Options options = drawn(seed);
    const fuzz::Outcome control = run(services(), options);
    EXPECT_TRUE(control.violations.empty()) << "seed " << seed << "\n" << describe(control);
    options.mutation = GetParam();
    if (!run(services(), options).violations.empty()) found = seed;
  }
  EXPECT_NE(found, 0U) << GetParam();
  RecordProperty("seeds_to_kill", static_cast<int>(found));
}

// The others are found in bugs_test.cc, and one_sender_kept in vqp/zero_copy_test.cc: one seed in
// 600 finds it here.
TEST(KrcoreFuzz, EveryBugHasATest) {
  const std::vector<std::string_view> elsewhere{
      "error_by_opcode",     "dead_queue_pair_kept",  "lease_from_answer",    "id_bound_off_by_one",
      "error_mid_list",      "transfer_without_fake", "transfer_without_ack", "generation_ignored",
      "offers_of_last_life", "unknown_confirmed",     "offers_in_turn",       "no_way_kept",
      "full_table_ignored",  "buckets_kept",          "one_sender_kept"};
  for (const std::string_view name : kBugNames) {
    EXPECT_TRUE(std::ranges::find(elsewhere, name) != elsewhere.end() ||
                std::ranges::find(kFoundBugs, name) != std::end(kFoundBugs))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, KrcoreFuzzBugs, testing::ValuesIn(kFoundBugs),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace pyrdma::krcore
