// Many random runs of a group under faults; see storm_test.h.
#include "systems/erpc/raft/storm_test.h"

#include <gtest/gtest.h>

#include "fuzz/small_test.h"

namespace pyrdma::erpc::raft {
namespace {

const std::uint64_t kStorms = fuzz::kSlowed ? 60 : 2000 * fuzz::search_factor();

/// Every eighth storm is long.
StormOptions plain_storm(std::uint64_t seed) {
  StormOptions options;
  options.seed = seed;
  if (seed % 8 != 0) options.length = 2 * kSecond;
  options.nodes = seed / 8 % 4 == 0 ? 5 : 3;
  options.pre_vote = seed % 3 != 0;
  return options;
}

std::uint64_t count_of(const StormReport& report, const std::string& branch) {
  const auto at = report.branches.find("erpc/raft/" + branch);
  return at == report.branches.end() ? 0 : at->second;
}

TEST(ErpcRaftStormSim, NoSeedBreaksAProperty) {
  if (!raft_problem().empty()) GTEST_SKIP() << raft_problem();
  StormReport all;
  for (std::uint64_t seed = 1; seed <= kStorms; ++seed) {
    const StormReport report = storm(plain_storm(seed));
    ASSERT_TRUE(report.findings.empty()) << "seed " << seed << ": " << report.text();
    all.operations += report.operations;
    all.faults += report.faults;
    all.elections += report.elections;
    all.restarts += report.restarts;
    for (const auto& [name, count] : report.branches) all.branches[name] += count;
  }
  EXPECT_GT(all.operations, 100 * kStorms);
  EXPECT_GT(all.faults, 10 * kStorms);
  EXPECT_GT(all.elections, kStorms);
  EXPECT_GT(all.restarts, kStorms);
  if (fuzz::kSlowed) return;  // too few seeds for the counts below
  for (const char* branch : {"leftover_not_acknowledged", "member_failed", "repeated_put",
                             "snapshot_installed", "snapshot_taken", "truncated", "refused"})
    EXPECT_GE(count_of(all, branch), 5u) << branch;
}

TEST(ErpcRaftStormSim, EqualSeedsGiveEqualRuns) {
  if (!raft_problem().empty()) GTEST_SKIP() << raft_problem();
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const StormReport first = storm(plain_storm(seed)), second = storm(plain_storm(seed));
    EXPECT_EQ(first.fingerprint, second.fingerprint) << "seed " << seed;
    EXPECT_EQ(first.branches, second.branches) << "seed " << seed;
    EXPECT_NE(first.fingerprint, storm(plain_storm(seed + 100)).fingerprint);
  }
}

}  // namespace
}  // namespace pyrdma::erpc::raft
