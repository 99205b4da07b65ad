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

const std::uint64_t kStoreSeeds = (fuzz::kSlowed ? 10 : 2000) * fuzz::search_factor();

const fuzz::Scenario& stores() {
  static const fuzz::Scenario scenario = store_scenario();
  return scenario;
}

// What a search draws, most often with fewer operations.
fuzz::Options drawn(std::uint64_t seed) {
  fuzz::Options options = fuzz::drawn(stores(), seed);
  options.profile = fabric::sim::test_profile();
  if (seed % 8 != 0) options.operations = 64 + options.operations % 256;
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
  EXPECT_GT(sums.late_crashes, kStoreSeeds / 2) << "crashes after 50 operations";
  EXPECT_GT(sums.restarts, kStoreSeeds);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  EXPECT_GE(2 * sums.begun_under_faults, sums.begun) << "faults ended too early";
  EXPECT_EQ(fuzz::checks_too_rare(stores(), sums), "");
  for (const Fault fault : stores().faults())
    EXPECT_GT(sums.faults.reached[static_cast<std::size_t>(fault)], 0U) << fault_info(fault).key;
  for (const std::string_view branch : stores().branches)
    EXPECT_GE(sums.branches.at(branch), 100U) << branch;
}

constexpr std::uint64_t kMostSeeds = 200;  // within which a bug is found

/// The runs in which a bug is looked for.
struct FoundBug {
  const char* name;
  std::vector<std::pair<Fault, double>> faults;  // and how often, times the rate of the table
  NodeId nodes = 0;                              // 0: the seed's
  const char* preset = "";
};
const FoundBug kFoundBugs[] = {
    {"closed_before_next_is_open", {{Fault::crash, 8}}, 5},
    {"copy_is_valid_at_once", {{Fault::crash, 8}}},
    {"read_does_not_wait", {{Fault::partition_partial, 8}, {Fault::crash, 3}}, 7},
    {"result_not_kept", {{Fault::loss, 8}, {Fault::ack_loss, 8}, {Fault::crash, 3}}},
    {"posted_out_of_order", {{Fault::qp_error, 10}, {Fault::crash, 4}}, 5, "flush"},
    {"scanned_before_closing",
     {{Fault::partition, 8}, {Fault::partition_partial, 8}},
     0,
     "tailwind"},
    {"lease_ignored", {{Fault::partition_partial, 8}}, 9},
    {"committed_without_last", {{Fault::crash, 6}, {Fault::host_crash, 4}}},
    {"old_segments_are_committed", {{Fault::partition_partial, 3}}, 7},
    {"removed_version_forgotten", {{Fault::crash, 4}}},
    {"dead_logs_freed", {{Fault::crash, 4}}},
    {"flush_ignored", {{Fault::battery_crash, 8}}, 5, "flush"},
    {"flushed_at_once", {{Fault::crash, 6}}, 5, "tailwind"},
};

fuzz::Options options_of_bug(const FoundBug& bug, std::uint64_t seed) {
  fuzz::Options options = drawn(seed);
  options.memory = fabric::sim::MemoryModel::weak();
  options.faults = FaultOptions();
  for (const auto& [fault, factor] : bug.faults) options.faults.enable(fault, factor);
  if (bug.nodes != 0) options.nodes = bug.nodes;
  options.preset = bug.preset;
  return options;
}

class TailwindFuzzBugs : public testing::TestWithParam<FoundBug> {};

TEST_P(TailwindFuzzBugs, AreFound) {
  const FoundBug& bug = GetParam();
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= kMostSeeds && found == 0; ++seed) {
    fuzz::Options options = options_of_bug(bug, seed);
    const fuzz::Outcome control = run(stores(), options);
    EXPECT_TRUE(control.violations.empty()) << "seed " << seed << "\n" << describe(control);
    options.mutation = bug.name;
    if (!run(stores(), options).violations.empty()) found = seed;
  }
  EXPECT_NE(found, 0U) << bug.name;
  RecordProperty("seeds_to_kill", static_cast<int>(found));
  // The faults show it, not luck.
  for (std::uint64_t seed = 1; seed <= 2 * found; ++seed) {
    fuzz::Options options = options_of_bug(bug, seed);
    options.faults = FaultOptions();
    options.mutation = bug.name;
    const fuzz::Outcome outcome = run(stores(), options);
    EXPECT_TRUE(outcome.violations.empty()) << "seed " << seed << "\n" << describe(outcome);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TailwindFuzzBugs, testing::ValuesIn(kFoundBugs),
                         [](const auto& each) { return std::string(each.param.name); });

// The others are found in the model of replication (replication_fuzz_test.cc), in the scan
// (scan_test.cc), in the backup (backup_service_test.cc) and in the cleaner (cleaner_test.cc,
// compaction_test.cc). A recovery that takes another cut breaks nothing that clients see: what one
// attempt has stored belongs to nobody before the tablets move.
TEST(TailwindFuzz, EveryBugHasATest) {
  const std::vector<std::string_view> elsewhere{"data_before_last_is_closed",
                                                "version_not_raised",
                                                "commits_without_consent",
                                                "tombstone_cleaned_early",
                                                "buffer_not_zeroed",
                                                "buffer_keeps_key",
                                                "cut_again",
                                                "contents_unchecked",
                                                "saved_memory_removed",
                                                "failed_knock_ends_node",
                                                "senders_unchecked",
                                                "knocks_ordered_by_nonce",
                                                "idle_unprobed",
                                                "cleaned_before_commit"};
  for (const std::string_view name : kBugNames) {
    EXPECT_TRUE(std::ranges::find(elsewhere, name) != elsewhere.end() ||
                std::ranges::any_of(kFoundBugs, [&](const auto& bug) { return bug.name == name; }))
        << name;
  }
}

}  // namespace
}  // namespace pyrdma::tailwind
