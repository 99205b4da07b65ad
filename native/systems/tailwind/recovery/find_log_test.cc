// What is salvaged of a log that is not whole. The model of replication tests find_log().
#include "systems/tailwind/recovery/find_log.h"

#include <gtest/gtest.h>

namespace pyrdma::tailwind {
namespace {

using Digest = std::optional<std::vector<std::uint64_t>>;

FoundReplica replica(std::uint32_t backup, std::uint64_t segment, bool is_closed,
                     std::uint32_t valid, const Digest& digest = std::nullopt) {
  return {backup, segment, 0, is_closed, false, valid, digest};
}

TEST(TailwindSalvage, TakesAllClosedSegmentsWhenTheHeadIsLost) {
  const std::vector<FoundReplica> found{replica(0, 1, true, 900), replica(1, 1, true, 900),
                                        replica(1, 2, true, 800, Digest({1, 2}))};
  EXPECT_NE(find_log(found, {}).missing, "");
  const FoundLog log = salvage_log(found);
  ASSERT_EQ(log.parts.size(), 2U);
  EXPECT_EQ(log.parts[0].replicas.size(), 2U);
  EXPECT_EQ(log.parts[1].valid, 800U);
  EXPECT_EQ(log.lost, "what came behind segment 2");
}

TEST(TailwindSalvage, NamesTheSegmentsThatNobodyHas) {
  const FoundLog log =
      salvage_log({replica(0, 2, true, 900), replica(0, 5, false, 300, Digest({1, 2, 3, 5}))});
  ASSERT_EQ(log.parts.size(), 2U);
  EXPECT_EQ(log.lost, "segments 1, 3");
}

TEST(TailwindSalvage, TakesTheBestReplicaOfASegment) {
  FoundReplica newer = replica(1, 1, true, 500);
  newer.version = 1;  // it was compacted
  FoundReplica half = replica(2, 2, false, 900);
  half.is_copy = true;
  const FoundLog log = salvage_log({replica(0, 1, true, 900), newer, half,
                                    replica(0, 2, false, 700), replica(1, 2, false, 600)});
  ASSERT_EQ(log.parts.size(), 2U);
  EXPECT_EQ(log.parts[0].valid, 500U);
  EXPECT_EQ(log.parts[0].replicas.size(), 1U);
  EXPECT_EQ(log.parts[1].valid, 700U);
  EXPECT_EQ(log.parts[1].replicas.size(), 1U);
}

// The newest digest may lack what the cleaner has moved: whoever has it is asked for it.
TEST(TailwindSalvage, TakesSegmentsThatNoDigestNames) {
  const FoundLog log =
      salvage_log({replica(0, 3, true, 400), replica(0, 4, true, 500, Digest({1, 2, 4}))});
  EXPECT_EQ(log.parts.size(), 2U);
  EXPECT_EQ(log.lost, "segments 1, 2, and what came behind segment 4");
}

// A bit that flips at the beginning of a saved buffer leaves nothing of it, and a recovery that
// asked for it would fail again and again.
TEST(TailwindSalvage, LeavesOutReplicasWithoutAValidByte) {
  const FoundLog log = salvage_log({replica(0, 1, true, 900), replica(0, 2, false, 0)});
  ASSERT_EQ(log.parts.size(), 1U);
  EXPECT_EQ(log.parts[0].segment, 1U);
  EXPECT_EQ(log.lost, "segments 2, and what came behind segment 1");
  EXPECT_TRUE(salvage_log({replica(0, 2, false, 0)}).parts.empty());
}

TEST(TailwindSalvage, SaysThatNothingIsLeft) {
  const FoundLog log = salvage_log({});
  EXPECT_TRUE(log.parts.empty());
  EXPECT_EQ(log.lost, "all segments");
}

}  // namespace
}  // namespace pyrdma::tailwind
