// The model of replication keeps its promises. Each deliberate bug in its order is found.
#include <gtest/gtest.h>

#include "fuzz/small_test.h"
#include "systems/tailwind/replication/replication_model_test.h"

namespace pyrdma::tailwind {
namespace {

TEST(TailwindReplicationFuzz, WhatIsCommittedIsFoundWheneverThePrimaryDies) {
  std::uint64_t segments = 0;
  int losses = 0, replica_losses = 0, stale_returns = 0, cleanings = 0, compactions = 0,
      compacted_reads = 0;
  const std::uint64_t seeds = fuzz::kSlowed ? 20 : 100 * fuzz::search_factor();
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    ReplicationModel model(seed, {});
    ASSERT_EQ(model.run(1'500), "") << "seed " << seed;
    ASSERT_TRUE(model.settles()) << "seed " << seed;
    segments += model.segments();
    losses += model.losses;
    replica_losses += model.replica_losses;
    stale_returns += model.stale_returns;
    cleanings += model.cleanings;
    compactions += model.compactions;
    compacted_reads += model.compacted_reads;
  }
  EXPECT_GT(segments, seeds * 10);
  EXPECT_GT(losses, static_cast<int>(seeds) * 5);
  EXPECT_GT(replica_losses, static_cast<int>(seeds) * 5);
  EXPECT_GT(stale_returns, static_cast<int>(seeds) * 100);
  EXPECT_GT(cleanings, static_cast<int>(seeds));
  EXPECT_GT(compactions, static_cast<int>(seeds) * 10);
  EXPECT_GT(compacted_reads, static_cast<int>(seeds) * 10);
}

/// The first seed that finds the bug, or 0.
int first_seed(Bug bug, bool has_losses) {
  for (int seed = 1; seed <= 30; ++seed) {
    ReplicationModel model(static_cast<std::uint64_t>(seed), bug, has_losses);
    if (!model.run(1'500).empty()) return seed;
  }
  return 0;
}

TEST(TailwindReplicationBugs, EachBugIsFound) {
  for (const Bug bug :
       {Bug::kClosedBeforeNextIsOpen, Bug::kDataBeforeLastIsClosed, Bug::kVersionNotRaised,
        Bug::kCommitsWithoutConsent, Bug::kCopyIsValidAtOnce, Bug::kFreedBeforeNextIsOpen,
        Bug::kSurvivorNotInDigest, Bug::kCleanedBeforeCommit}) {
    // Compaction alone needs a loss, combined cleaning none: kCleanedBeforeCommit is found in both.
    const bool needs_losses = bug >= Bug::kVersionNotRaised && bug <= Bug::kCommitsWithoutConsent;
    EXPECT_NE(first_seed(bug, true), 0) << "bug " << static_cast<int>(bug);
    EXPECT_EQ(first_seed(bug, false) == 0, needs_losses) << "bug " << static_cast<int>(bug);
  }
}

}  // namespace
}  // namespace pyrdma::tailwind
