// Segments and their memory: what is appended is what a replica has and what a scan finds.
#include "systems/tailwind/log/segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
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
    const Entry entry(memory.at(place));
    ASSERT_TRUE(entry.is_whole());
    ASSERT_TRUE(std::ranges::equal(entry.key(), bytes_of(key)));
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

// Each batch lies in one run, in the order given, with one checksum entry.
TEST(TailwindSegment, ABatchLiesInOnePieceOrNotAtAll) {
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
      const Entry entry(memory.at(places[i]));
      EXPECT_TRUE(entry.is_whole());
      EXPECT_EQ(entry.size(), batch[i].size());
      EXPECT_EQ(entry.version(), version - batch.size() + 1 + i);
      if (i > 0) {
        EXPECT_EQ(places[i], places[i - 1] + batch[i - 1].size());
      }
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

TEST(TailwindLogMemory, SegletsAreTakenOnceAndGivenBack) {
  Bytes room(std::size_t{64} * LogMemory::kSeglet + 100);
  LogMemory memory(room);
  EXPECT_EQ(memory.seglets(), 64U);
  Rng rng(3, 0, "memory");
  Segment owners[2] = {{memory, 1, 1}, {memory, 1, 2}};
  struct Taken {
    Place place;
    std::uint32_t count;
    Segment* owner;
  };
  std::deque<Taken> taken;
  std::vector<Segment*> model(64);
  for (int turn = 0; turn < 5'000; ++turn) {
    if (rng.below(2) == 0) {
      Segment& owner = owners[rng.below(2)];
      const auto count = static_cast<std::uint32_t>(1 + rng.below(rng.below(4) == 0 ? 17 : 1));
      const Place place = memory.take(owner, count);
      const auto fits = [&] {  // anywhere
        std::uint32_t free = 0;
        for (const Segment* of : model) {
          free = of == nullptr ? free + 1 : 0;
          if (free == count) return true;
        }
        return false;
      };
      ASSERT_EQ(place != 0, fits());
      if (place == 0) continue;
      for (std::uint32_t i = 0; i < count; ++i) {
        Segment*& of = model.at(place / LogMemory::kSeglet - 1 + i);
        ASSERT_EQ(of, nullptr);
        of = &owner;
      }
      taken.push_back({place, count, &owner});
    } else if (!taken.empty()) {
      std::swap(taken[rng.below(taken.size())], taken.back());
      const Taken last = taken.back();
      taken.pop_back();
      ASSERT_EQ(memory.owner(last.place + last.count * LogMemory::kSeglet - 1), last.owner);
      memory.give_back(last.place, last.count);
      for (std::uint32_t i = 0; i < last.count; ++i)
        model[last.place / LogMemory::kSeglet - 1 + i] = nullptr;
    }
    ASSERT_EQ(memory.free_seglets(),
              static_cast<std::uint32_t>(std::ranges::count(model, nullptr)));
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
