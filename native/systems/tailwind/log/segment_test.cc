// Segments and their memory: what is appended is what a replica has and what a scan finds.
#include "systems/tailwind/log/segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "base/error_test.h"
#include "base/rng.h"
#include "systems/tailwind/log/replica_test.h"
#include "systems/tailwind/log/scan.h"

namespace pyrdma::tailwind {
namespace {

ByteView bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

Bytes replica_of(const Segment& segment) {
  Bytes replica(segment.capacity());
  std::uint32_t next = 0;
  segment.for_pieces(0, segment.end(), [&](ByteView piece, std::uint32_t offset) {
    EXPECT_EQ(offset, next);
    std::memcpy(replica.data() + offset, piece.data(), piece.size());
    next = offset + static_cast<std::uint32_t>(piece.size());
  });
  EXPECT_EQ(next, segment.end());
  return replica;
}

TEST(TailwindSegment, AReplicaHasWhatWasAppended) {
  Bytes room(std::size_t{200} * LogMemory::kSeglet);
  LogMemory memory(room);
  Rng rng(1, 0, "segment");
  Segment segment(memory, 7, 3);
  std::vector<std::pair<Place, std::string>> known;
  for (std::uint64_t version = 1;; ++version) {
    const std::string key = "key" + std::to_string(version);
    // Some are larger than a seglet.
    const std::string value(rng.below(50) == 0 ? rng.below(1 << 18) : rng.below(500), 'v');
    if (!segment.has_room(key.size() + value.size())) break;
    const Place place = segment.append(object(version), bytes_of(key), bytes_of(value));
    ASSERT_NE(place, 0U);
    ASSERT_EQ(memory.owner(place), &segment);
    known.emplace_back(place, key);
  }
  for (const auto& [place, key] : known) {
    const WholeEntry entry = memory.entry(place);
    ASSERT_TRUE(entry->is_whole());
    ASSERT_TRUE(std::ranges::equal(entry->key(), bytes_of(key)));
    ASSERT_TRUE(std::ranges::equal(memory.header_and_key(place)->key(), bytes_of(key)));
  }
  const Bytes replica = replica_of(segment);
  const Scan found = scan(replica);
  EXPECT_EQ(found.valid, segment.end());
  EXPECT_EQ(found.checksum, segment.checksum());
  EXPECT_EQ(found.entries, known.size());
  std::size_t next = 0;
  segment.for_entries([&](const Entry& entry, Place place) {
    ASSERT_LT(next, known.size());
    ASSERT_EQ(place, known[next].first);
    ASSERT_EQ(entry.version(), ++next);
  });
  EXPECT_EQ(next, known.size());
}

// Each batch lies in the order given, with one checksum entry.
TEST(TailwindSegment, ABatchIsAppendedWholeOrNotAtAll) {
  Bytes room(std::size_t{20} * LogMemory::kSeglet);
  LogMemory memory(room);
  Rng rng(4, 0, "batches");
  Segment segment(memory, 7, 3), rest(memory, 7, 4);
  std::uint64_t version = 0;
  std::uint32_t batches = 0;
  for (;;) {
    std::vector<std::string> values(1 + rng.below(4));
    std::vector<NewEntry> batch;
    for (std::string& value : values) {
      value.assign(rng.below(20'000), 'v');
      batch.push_back({object(++version), bytes_of(value).first(value.size() / 2),
                       bytes_of(value).subspan(value.size() / 2)});
    }
    const std::uint32_t end = segment.end(), entries = segment.entries();
    std::vector<Place> places(batch.size());
    if (!segment.append(batch, places.data())) {
      EXPECT_EQ(segment.end(), end);
      EXPECT_EQ(segment.entries(), entries);
      version -= batch.size();
      break;
    }
    ++batches;
    EXPECT_EQ(segment.end(), end + appended_bytes(batch));
    EXPECT_EQ(segment.entries(), entries + batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const WholeEntry entry = memory.entry(places[i]);
      EXPECT_TRUE(entry->is_whole());
      EXPECT_EQ(entry->size(), batch[i].size());
      EXPECT_EQ(entry->version(), version - batch.size() + 1 + i);
    }
  }
  EXPECT_GT(batches, 10U);
  const Bytes replica = replica_of(segment);
  EXPECT_EQ(scan(replica).valid, segment.end());
  EXPECT_EQ(scan(replica).entries, segment.entries());
  std::uint64_t next = 0;
  segment.for_entries([&](const Entry& entry, Place) { EXPECT_EQ(entry.version(), ++next); });
  EXPECT_EQ(next, version);
}

TEST(TailwindSegment, PiecesAreCutWhereTheyAreAsked) {
  Bytes room(std::size_t{4} * LogMemory::kSeglet);
  LogMemory memory(room);
  Segment segment(memory, 1, 1);
  for (std::uint64_t version = 0; version < 600; ++version)
    segment.append(object(version), bytes_of("key"), bytes_of(std::string(300, 'v')));
  const Bytes whole = replica_of(segment);
  Rng rng(2, 0, "pieces");
  for (int round = 0; round < 200; ++round) {
    const auto from = static_cast<std::uint32_t>(rng.below(segment.end() + 1));
    const auto to = from + static_cast<std::uint32_t>(rng.below(segment.end() - from + 1));
    Bytes part;
    segment.for_pieces(from, to, [&](ByteView piece, std::uint32_t offset) {
      EXPECT_EQ(offset, from + part.size());
      part.insert(part.end(), piece.begin(), piece.end());
    });
    ASSERT_TRUE(std::ranges::equal(part, ByteView(whole).subspan(from, to - from)));
  }
}

// Every other seglet is in use, and entries of up to 1 MiB take all that are left.
TEST(TailwindSegment, AnEntryLiesInWhateverIsFree) {
  for (const std::uint32_t seglet : {4U << 10, LogMemory::kSeglet}) {
    Bytes room(8U << 20);
    LogMemory memory(room, seglet);
    std::vector<std::unique_ptr<Segment>> used;
    const std::string one(seglet - sizeof(EntryHeader) - sizeof(ChecksumEntry), 'u');
    for (std::uint64_t number = 1; memory.free_seglets() != 0; ++number) {
      used.push_back(std::make_unique<Segment>(memory, 7, number));
      ASSERT_NE(used.back()->append(object(1), {}, bytes_of(one)), 0U);
    }
    for (std::size_t i = 0; i < used.size(); i += 2) used[i].reset();
    Segment segment(memory, 7, 1000);
    Rng rng(6, 0, "fragments");
    std::vector<std::pair<Place, std::string>> known;
    for (std::uint64_t version = 1;; ++version) {
      const std::string key(rng.below(kMostKey + 1), static_cast<char>('a' + version % 26));
      const std::string value(rng.below(2) == 0 ? rng.below(300) : rng.below(kMostValue), 'v');
      const std::uint64_t bytes = segment.end() + 42 + key.size() + value.size();
      const Place place = segment.append(object(version), bytes_of(key), bytes_of(value));
      ASSERT_EQ(place != 0, bytes <= room.size() / 2) << "no free seglet is of no use";
      if (place == 0) break;
      known.emplace_back(place, key + value);
    }
    EXPECT_GT(known.size(), 6U);
    for (const auto& [place, contents] : known) {
      const WholeEntry entry = memory.entry(place);
      ASSERT_TRUE(entry->is_whole());
      ASSERT_TRUE(std::ranges::equal(entry->contents(), bytes_of(contents)));
    }
    const Bytes replica = replica_of(segment);
    EXPECT_EQ(scan(replica).valid, segment.end());
    EXPECT_EQ(scan(replica).entries, known.size());
  }
}

TEST(TailwindLogMemory, SegletsAreTakenOnceAndGivenBack) {
  Bytes room(std::size_t{64} * LogMemory::kSeglet + 100);
  LogMemory memory(room);
  EXPECT_EQ(memory.seglets(), 64U);
  Rng rng(3, 0, "memory");
  Segment owners[2] = {{memory, 1, 1}, {memory, 1, 2}};
  std::map<Place, Segment*> model;
  for (int turn = 0; turn < 5'000; ++turn) {
    if (rng.below(2) == 0 && memory.free_seglets() != 0) {
      Segment& owner = owners[rng.below(2)];
      const Place place = memory.take(owner, 0);
      ASSERT_EQ(place % LogMemory::kSeglet, 0U);
      ASSERT_TRUE(model.emplace(place, &owner).second) << "it is in use";
    } else if (!model.empty()) {
      const auto any = std::next(model.begin(), static_cast<int>(rng.below(model.size())));
      ASSERT_EQ(memory.owner(any->first + LogMemory::kSeglet - 1), any->second);
      memory.give_back(any->first);
      model.erase(any);
    }
    ASSERT_EQ(memory.free_seglets(), 64 - model.size());
  }
  EXPECT_EQ(memory.at(LogMemory::kSeglet), room.data());
}

TEST(TailwindLogMemory, AFullMemorySaysSo) {
  Bytes room(LogMemory::kSeglet);
  LogMemory memory(room);
  {
    Segment segment(memory, 1, 1), other(memory, 1, 2);
    const std::string value(40'000, 'v');
    EXPECT_NE(segment.append(object(1), {}, bytes_of(value)), 0U);
    const std::uint32_t end = segment.end();
    EXPECT_EQ(segment.append(object(2), {}, bytes_of(value)), 0U);
    EXPECT_EQ(segment.end(), end);
    EXPECT_EQ(other.append(object(3), {}, bytes_of(value)), 0U);
  }
  EXPECT_EQ(memory.free_seglets(), 1U) << "the segment has given its seglet back";
  EXPECT_TRUE(refuses([&] { LogMemory(std::span(room).first(100)); }, ErrorCode::kInvalidArgument,
                      {"100", "65536"}));
}

}  // namespace
}  // namespace pyrdma::tailwind
