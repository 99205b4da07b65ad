// The parts of a recovery: all hashes once, in parts of equal weight.
#include "systems/tailwind/coordinator/partitions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace pyrdma::tailwind {
namespace {

using Parts = std::vector<std::vector<HashRange>>;
constexpr std::uint64_t kMostHash = ~std::uint64_t{0};

Parts parts_of(const std::vector<HashRange>& ranges, std::uint64_t count) {
  std::vector<Tablet> tablets;
  for (const HashRange& range : ranges) tablets.push_back({range, {}, {}});
  return partitions(tablets, {count, 0, 1, 1});
}

TEST(TailwindPartitions, AreAsManyAsTheLimitsAskFor) {
  const std::vector<Tablet> tablets{{{1, 0, kMostHash}, {}, {}}};
  const auto count = [&](std::uint64_t bytes, std::uint64_t records) {
    return partitions(tablets, {bytes, records, 500, 20}).size();
  };
  EXPECT_EQ(count(0, 0), 1U);
  EXPECT_EQ(count(500, 20), 1U);
  EXPECT_EQ(count(501, 20), 2U);
  EXPECT_EQ(count(500, 21), 2U);
  EXPECT_EQ(count(1500, 100), 5U);
  EXPECT_EQ(count(3001, 100), 7U);
  EXPECT_TRUE(partitions({}, {1000, 0, 500, 20}).empty());
}

TEST(TailwindPartitions, CutAtEqualShares) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  EXPECT_EQ(parts_of({{1, 0, kMostHash}}, 2),
            (Parts{{{1, 0, kHalf - 1}}, {{1, kHalf, kMostHash}}}));
  // The second table has a third of the hashes.
  EXPECT_EQ(parts_of({{1, 0, 7}, {2, 10, 13}}, 2), (Parts{{{1, 0, 5}}, {{1, 6, 7}, {2, 10, 13}}}));
  EXPECT_EQ(parts_of({{1, 5, 5}, {1, kMostHash, kMostHash}}, 3),
            (Parts{{{1, 5, 5}}, {{1, kMostHash, kMostHash}}}))
      << "two hashes make no three parts";
}

TEST(TailwindPartitions, HaveEachHashOnceAndEqualWeights) {
  Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<HashRange> ranges;
    for (std::uint64_t table = 1 + rng.below(3), left = 1 + rng.below(5); left != 0; --left) {
      if (rng.below(2) == 0) ++table;
      const bool is_next = !ranges.empty() && ranges.back().table == table;
      const std::uint64_t least = is_next ? ranges.back().last : 0;
      if (least > kMostHash - 100) continue;
      // Short ranges, long ones, and ones to the end.
      const std::uint64_t first = least + 1 + rng.below(3);
      const std::uint64_t room = kMostHash - first;
      const std::uint64_t more =
          rng.below(3) == 0 ? room : rng.below(rng.below(2) == 0 ? 50 : room);
      ranges.push_back({table, first, first + more});
    }
    const std::uint64_t wanted = 1 + rng.below(40);
    const Parts parts = parts_of(ranges, wanted);
    unsigned __int128 all = 0, least = ~static_cast<unsigned __int128>(0), most = 0;
    std::vector<HashRange> joined;
    for (const auto& part : parts) {
      unsigned __int128 hashes = 0;
      for (const HashRange& range : part) {
        ASSERT_LE(range.first, range.last);
        hashes += static_cast<unsigned __int128>(range.last - range.first) + 1;
        // Ranges of neighbouring parts join again where a cut was.
        const bool is_begin = std::ranges::any_of(ranges, [&](const HashRange& whole) {
          return whole.table == range.table && whole.first == range.first;
        });
        const bool is_cut = !is_begin && &range == &part.front() && !joined.empty() &&
                            joined.back().table == range.table &&
                            joined.back().last + 1 == range.first;
        if (is_cut) {
          joined.back().last = range.last;
        } else {
          joined.push_back(range);
        }
      }
      all += hashes;
      least = std::min(least, hashes);
      most = std::max(most, hashes);
    }
    EXPECT_EQ(joined, ranges) << "round " << round;
    EXPECT_LE(most - least, 1U) << "round " << round;
    EXPECT_EQ(parts.size(), all < wanted ? static_cast<std::uint64_t>(all) : wanted);
  }
}

// ---- shares ----

std::uint64_t hashes_in(const std::vector<HashRange>& ranges) {
  std::uint64_t hashes = 0;
  for (const HashRange& range : ranges) hashes += range.last - range.first + 1;
  return hashes;
}
/// 1,000 hashes, of which `bytes` is evenly taken.
Shares shares_of(std::uint64_t bytes, const std::vector<std::uint64_t>& rooms,
                 std::uint64_t least = 1) {
  return shares({{{1, 0, 999}, {}, {}}}, {bytes, 0, 500, 20}, rooms, 1, least);
}

TEST(TailwindShares, AreWholePartsInTurnsWhereThereIsRoom) {
  const Shares one = shares_of(400, {1000, 1000, 1000});
  EXPECT_EQ(one.parts, 1U);
  EXPECT_EQ(one.of_owners[1], (std::vector<HashRange>{{1, 0, 999}}));
  const Shares three = shares_of(1500, {1000, 1000, 1000});
  EXPECT_EQ(three.parts, 3U);
  for (const auto& ranges : three.of_owners) EXPECT_EQ((hashes_in(ranges) + 1) / 3, 111U);
}

TEST(TailwindShares, AreCutUntilTheyFit) {
  const Shares cut = shares_of(400, {150, 150, 150});
  EXPECT_GT(cut.parts, 2U);
  std::uint64_t all = 0;
  for (const auto& ranges : cut.of_owners) {
    EXPECT_LE(hashes_in(ranges) * 400 / 1000, 150U);
    all += hashes_in(ranges);
  }
  EXPECT_EQ(all, 1000U);
  EXPECT_EQ(hashes_in(shares_of(400, {0, 400, 0}).of_owners[1]), 1000U);
  EXPECT_EQ(shares_of(400, {1000, 1000}, 8).parts, 8U);
}

// Whoever gets more than its log takes cannot store its share. So that is one owner alone.
TEST(TailwindShares, GoToOneOwnerWhenTheyFitNowhere) {
  const std::vector<std::uint64_t> rooms{10, 50, 20};
  const Shares crowded = shares_of(400, rooms);
  std::uint64_t all = 0;
  int overfull = 0;
  for (std::size_t owner = 0; owner < rooms.size(); ++owner) {
    const std::uint64_t hashes = hashes_in(crowded.of_owners[owner]);
    EXPECT_GT(hashes, 0U);
    overfull += hashes * 400 / 1000 > rooms[owner];
    all += hashes;
  }
  EXPECT_EQ(all, 1000U);
  EXPECT_EQ(overfull, 1);
  EXPECT_EQ(shares({}, {400, 0, 500, 20}, {1, 2}, 0).parts, 0U);
}

}  // namespace
}  // namespace pyrdma::tailwind
