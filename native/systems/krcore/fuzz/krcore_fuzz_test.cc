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

const fuzz::Scenario& services() {
  static const fuzz::Scenario scenario = service_scenario();
  return scenario;
}

fuzz::Options drawn(std::uint64_t seed) {
  fuzz::Options options = fuzz::small_options(seed, {3, 80, 200, true});
  if (seed % 16 == 8) options.nodes = seed % 32 == 8 ? 2 : 6;
  // Few writes leave at the moment of a crash.
  if (seed % 4 == 1) {
    options.faults.enable(Fault::crash, 4);
    options.faults[Fault::torn_crash].rate = 1;
  }
  options.faults = fuzz::limited(services(), options.faults);
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
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_GT(sums.late_crashes, kServiceSeeds / 10) << "crashes after 50 operations";
  // Too few seeds for the counts below.
  if (fuzz::kSlowed) return;
  for (const Fault fault : services().faults)
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : services().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
}

// 5133: a held READ of a zero-copy message had no address of its sender, whose life before had
// ended without a port.
// 6653: a thread posted for an application that had ended, on a node that was killed.
// 1738: who confirmed a connection to a life that had ended got no answer, and asked for it in
// vain. 6899: without dynamic connections, an answer found no way while its connection was being
// made.
// 10346: a queue pair that had moved to another core was reset while a failure of it was noted.
// 610: two threads that polled handed each other the lock for which the service's own thread tried.
TEST(KrcoreFuzz, SeedsThatHaveFoundBugs) {
  for (const std::uint64_t seed : {5133U, 6653U, 1738U, 6899U, 10346U, 610U}) {
    const fuzz::Outcome outcome = run(services(), drawn(seed));
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
  }
}

// Runs of the usual size for a search from outside. A message overtook those of a connection that
// its peer had left, or that had failed: they lay with another core of the receiver. 16011: regions
// were not freed while the builder asked a dead meta server.
TEST(KrcoreFuzz, LongRunsThatHaveFoundBugs) {
  for (const std::uint64_t seed : {16014U, 16108U, 16200U, 16508U, 16011U}) {
    fuzz::Options options;
    options.profile = fabric::sim::test_profile();
    options.seed = seed;
    options.faults = fuzz::limited(services(), FaultOptions::draw(seed));
    const fuzz::Outcome outcome = run(services(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
  }
}

constexpr std::uint64_t kMostSeeds = 200;  // within which a bug is found

/// The runs in which a bug is looked for.
struct FoundBug {
  const char* name;
  std::vector<std::pair<Fault, double>> faults;  // and how often, times the rate of the table
};
const FoundBug kFoundBugs[] = {
    {"no_check", {}},
    {"count_unpacked_short", {}},
    {"no_wait_for_lease", {}},
    {"meta_on_miss_only", {}},
    {"count_off_by_one", {}},
    {"head_ready_only", {}},
    {"send_depth_only", {}},
    {"stale_meta_kept", {{Fault::crash, 3}}},
    {"read_before_receive", {}},
    {"strangers_believed", {}},
};

class KrcoreFuzzBugs : public testing::TestWithParam<FoundBug> {};

TEST_P(KrcoreFuzzBugs, AreFound) {
  const FoundBug& bug = GetParam();
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= kMostSeeds && found == 0; ++seed) {
    fuzz::Options options = drawn(seed);
    options.memory = fabric::sim::MemoryModel::weak();
    options.faults = FaultOptions();
    for (const auto& [fault, factor] : bug.faults) options.faults.enable(fault, factor);
    const fuzz::Outcome control = run(services(), options);
    EXPECT_TRUE(control.violations.empty()) << "seed " << seed << "\n" << describe(control);
    options.mutation = bug.name;
    if (!run(services(), options).violations.empty()) found = seed;
  }
  EXPECT_NE(found, 0U) << bug.name;
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
                std::ranges::any_of(kFoundBugs, [&](const auto& bug) { return bug.name == name; }))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, KrcoreFuzzBugs, testing::ValuesIn(kFoundBugs),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace pyrdma::krcore
