// The words of the table, and the description of a table.
#include "systems/krcore/race/layout.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error_test.h"
#include "systems/krcore/race/address.h"
#include "systems/krcore/race/subtable.h"

namespace pyrdma::krcore::race {
namespace {

KeyHash hash_of_text(const std::string& text) {
  return KeyHash::of(std::as_bytes(std::span(text)));
}

TEST(RaceLayout, ASlotHasItsFields) {
  constexpr std::uint64_t kOffset = (1ULL << 38) - kUnit;
  const Slot slot = Slot::entry(0xab, 255, kOffset, 1023, 15);
  EXPECT_EQ(slot.fingerprint(), 0xab);
  EXPECT_EQ(slot.units(), 255U);
  EXPECT_EQ(slot.offset(), kOffset);
  EXPECT_EQ(slot.version(), 1023U);
  EXPECT_EQ(slot.depth(), 15U);
  EXPECT_FALSE(slot.is_empty() || slot.is_tentative() || slot.is_frozen());
  EXPECT_TRUE(slot.tentative().is_tentative());
  EXPECT_TRUE(slot.frozen().is_frozen());
  EXPECT_EQ(slot.tentative().plain(), slot);
  EXPECT_EQ(slot.frozen().plain(), slot);
  const Slot next = Slot::entry(0xab, 255, kOffset, 1023, 4).at_depth(5);
  EXPECT_EQ(next, Slot::entry(0xab, 255, kOffset, 1023, 5));
}

// No compare-and-swap that expects a free slot of one depth takes one of another depth.
TEST(RaceLayout, FreeSlotsOfDifferentDepthsDiffer) {
  std::set<std::uint64_t> words;
  for (std::uint32_t depth = 0; depth <= kMostDepth; ++depth) {
    EXPECT_TRUE(Slot::empty(depth).is_empty());
    EXPECT_EQ(Slot::empty(depth).depth(), depth);
    words.insert(Slot::empty(depth).word());
  }
  EXPECT_EQ(words.size(), kMostDepth + 1U);
  EXPECT_EQ(Slot::empty(0).word(), 0U);
}

TEST(RaceLayout, OtherWordsHaveTheirFields) {
  const Header header = Header::of(Header{7, 93}.word());
  EXPECT_EQ(header.depth, 7U);
  EXPECT_EQ(header.suffix, 93U);
  const SplitWord split{9, true, 0x1ffff, 1023, 0xfffe, 0xfffd};
  const SplitWord same = SplitWord::of(split.word());
  EXPECT_EQ(same.word(), split.word());
  EXPECT_EQ(same.depth, 9U);
  EXPECT_TRUE(same.is_locked);
  EXPECT_EQ(same.beat, 0x1ffffU);
  EXPECT_EQ(same.client, 1023U);
  EXPECT_EQ(same.incarnation, 0xfffeU);
  EXPECT_EQ(same.node, 0xfffdU);
  const DirectoryEntry entry = DirectoryEntry::of(DirectoryEntry{5, 3, 1ULL << 37}.word());
  EXPECT_EQ(entry.node, 5U);
  EXPECT_EQ(entry.depth, 3U);
  EXPECT_EQ(entry.offset, 1ULL << 37);
  EXPECT_TRUE(DirectoryEntry::is_there(DirectoryEntry{}.word()));
  EXPECT_FALSE(DirectoryEntry::is_there(0));
}

TEST(RaceLayout, TheCandidatesOfAKeyShareNoBucket) {
  for (const std::uint32_t groups : {2U, 4U, 64U}) {
    std::set<std::uint64_t> places;
    for (int i = 0; i < 2000; ++i) {
      const KeyHash hash = hash_of_text("key " + std::to_string(i));
      std::uint64_t group[2];
      for (std::uint32_t candidate = 0; candidate < 2; ++candidate) {
        const std::uint64_t at = hash.combined(candidate, groups);
        group[candidate] = (at - kSubtableHead) / kGroupBytes;
        EXPECT_LT(group[candidate], groups);
        EXPECT_EQ((at - kSubtableHead) % kGroupBytes, hash.main(candidate) * kBucketBytes);
        places.insert(at);
      }
      EXPECT_NE(group[0], group[1]);
    }
    EXPECT_EQ(places.size(), std::size_t{groups} * 2);  // all main buckets are used
  }
}

// A key moves with the next bit of its hash, and its places in a subtable stay.
TEST(RaceLayout, AKeyIsInOneSubtableOfEachDepth) {
  for (int i = 0; i < 200; ++i) {
    const KeyHash hash = hash_of_text(std::to_string(i));
    for (std::uint32_t depth = 0; depth <= 6; ++depth) {
      int found = 0;
      for (std::uint64_t suffix = 0; suffix < 1ULL << depth; ++suffix)
        found += hash.is_in(suffix, depth);
      EXPECT_EQ(found, 1);
    }
    EXPECT_FALSE(hash.is_in(0, kMostDepth + 1));
  }
}

TEST(RaceLayout, KeysWithCommonBeginsAndZerosHaveDifferentHashes) {
  std::set<std::uint64_t> first, second;
  const std::vector<std::string> keys{"a",
                                      std::string("a\0", 2),
                                      std::string("a\0\0", 3),
                                      std::string(8, 'a'),
                                      std::string(16, 'a'),
                                      std::string(17, 'a')};
  for (const std::string& key : keys) {
    first.insert(hash_of_text(key).a);
    second.insert(hash_of_text(key).b);
  }
  EXPECT_EQ(first.size(), keys.size());
  EXPECT_EQ(second.size(), keys.size());
}

TEST(RaceLayout, ANewSubtableIsEmpty) {
  std::vector<std::byte> bytes(kSubtableHead + 2 * kGroupBytes, std::byte{0xff});
  format_subtable(bytes, 3, 5);
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), 8);
  EXPECT_FALSE(SplitWord::of(word).is_locked);
  EXPECT_EQ(SplitWord::of(word).depth, 3U);
  for (std::size_t at = kSubtableHead; at < bytes.size(); at += 8) {
    std::memcpy(&word, bytes.data() + at, 8);
    EXPECT_EQ(word, at % kBucketBytes == 0 ? (Header{3, 5}.word()) : Slot::empty(3).word());
  }
}

TableAddress two_nodes() {
  TableAddress table;
  table.nodes = 2;
  table.groups = 4;
  table.first_depth = 1;
  table.max_depth = 4;
  table.max_key_bytes = 16;
  table.max_value_bytes = 100;
  for (std::uint32_t node = 0; node < 2; ++node) table.regions[node].length = 1U << 20;
  return table;
}

TEST(RaceAddress, RefusesWhatCannotBe) {
  const auto with = [](auto change) {
    TableAddress table = two_nodes();
    change(table);
    return [table] { table.check(); };
  };
  EXPECT_NO_THROW(two_nodes().check());
  constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
  EXPECT_TRUE(refuses(with([](auto& t) { t.nodes = 17; }), kBad, {"17", "16"}));
  EXPECT_TRUE(refuses(with([](auto& t) { t.nodes = 0; }), kBad, {"0", "1"}));
  EXPECT_TRUE(refuses(with([](auto& t) { t.groups = 1; }), kBad, {"1", "2"}));
  EXPECT_TRUE(refuses(with([](auto& t) { t.groups = 6; }), kBad, {"6", "8"}));
  EXPECT_TRUE(refuses(with([](auto& t) { t.max_depth = 16; }), kBad, {"16", "15"}));
  EXPECT_TRUE(refuses(with([](auto& t) { t.first_depth = 5; }), kBad, {"5", "4"}));
  EXPECT_TRUE(refuses(with([](auto& t) { t.max_key_bytes = 0; }), kBad, {"0", "4096"}));
  EXPECT_TRUE(refuses(with([](auto& t) { t.max_value_bytes = 16300; }), kBad, {"16300", "16280"}));
  EXPECT_TRUE(refuses(with([](auto& t) { t.regions[1].length = 100; }), kBad, {"100"}));
}

TEST(RaceAddress, JoinsTheDescriptionsOfAllNodes) {
  const TableAddress whole = two_nodes();
  std::vector<TableAddress> parts(2, whole);
  parts[0].regions[1] = parts[1].regions[0] = {};
  const TableAddress table = join(parts);
  EXPECT_EQ(table.regions[0].length, 1U << 20);
  EXPECT_EQ(table.regions[1].length, 1U << 20);
  constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
  EXPECT_TRUE(refuses([&] { join(std::span(parts).first(1)); }, kBad, {"2", "1"}));
  EXPECT_TRUE(refuses([] { join({}); }, kBad, {"0"}));
  parts[1].groups = 8;
  EXPECT_TRUE(refuses([&] { join(parts); }, kBad));
}

TEST(RaceAddress, KnowsItsMemory) {
  const TableAddress table = two_nodes();
  EXPECT_EQ(table.first_subtable(0).node, 0U);
  EXPECT_EQ(table.first_subtable(1).node, 1U);
  EXPECT_EQ(table.first_subtable(1).offset, table.first_subtables_at());
  EXPECT_EQ(table.heap_at(), table.first_subtables_at() + table.subtable_bytes());
  EXPECT_TRUE(table.holds(0, table.heap_at(), 64));
  EXPECT_FALSE(table.holds(2, table.heap_at(), 64));
  EXPECT_FALSE(table.holds(0, table.heap_at() + 8, 64));
  EXPECT_FALSE(table.holds(0, 0, 64));
  EXPECT_FALSE(table.holds(0, (1U << 20) - 64, 128));
  EXPECT_FALSE(table.holds(0, ~63ULL, 128));
  EXPECT_FALSE(table.holds(0, table.heap_at(), ~0ULL));
}

}  // namespace
}  // namespace pyrdma::krcore::race
