// The log of a primary: heads, digests and what is of use.
#include "systems/tailwind/log/log.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/rng.h"
#include "systems/tailwind/log/replica_test.h"
#include "systems/tailwind/log/scan.h"
#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {
namespace {

constexpr std::uint32_t kSmall = 128U << 10;  // bytes of a segment

struct Primary {
  explicit Primary(std::uint32_t seglets = 64)
      : room(std::size_t{seglets} * LogMemory::kSeglet), memory(room), log(memory, 42, kSmall) {}
  Place append(std::uint64_t version) {
    const std::string value(500, 'v');
    return log.append(object(version), {}, std::as_bytes(std::span(value)));
  }
  Bytes room;
  LogMemory memory;
  Log log;
};

TEST(TailwindLog, EachHeadNamesItselfAndAllSegments) {
  Primary primary;
  EXPECT_EQ(primary.append(1), 0U) << "there is no head";
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t number = 1; number <= 4; ++number) {
    Segment* next = primary.log.prepare();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(primary.log.prepare(), next);
    EXPECT_NE(primary.log.head(), next);
    primary.log.advance();
    EXPECT_EQ(primary.log.head(), next);
    numbers.push_back(number);
    std::vector<EntryType> types;
    next->for_entries([&](const Entry& entry, Place) {
      types.push_back(entry.type());
      EXPECT_EQ(entry.table(), 42U);
      EXPECT_EQ(entry.version(), number);
      if (entry.type() == EntryType::kDigest) {
        EXPECT_EQ(read_digest(entry), numbers);
      }
    });
    EXPECT_EQ(types, (std::vector{EntryType::kSegment, EntryType::kDigest}));
    if (number == 3) {
      primary.log.free(2);
      std::erase(numbers, 2);
    }
  }
}

// What a survivor takes ends behind a head that it has overtaken.
TEST(TailwindLog, AHeadIsTheNewestUntilASurvivorIsMade) {
  Primary primary;
  primary.log.prepare();
  primary.log.advance();
  EXPECT_TRUE(primary.log.head_is_newest());
  const auto survivor = primary.log.make_survivor();
  EXPECT_GT(survivor->id(), primary.log.head()->id());
  EXPECT_FALSE(primary.log.head_is_newest());
  primary.log.prepare();
  primary.log.advance();
  EXPECT_TRUE(primary.log.head_is_newest());
}

TEST(TailwindLog, AFullHeadTakesNothing) {
  Primary primary;
  primary.log.prepare();
  primary.log.advance();
  std::uint64_t version = 0;
  while (primary.append(version + 1) != 0) ++version;
  EXPECT_FALSE(primary.log.head()->has_room(500));
  const std::uint32_t first = 30 + 12 + 38 + 12, each = 30 + 500 + 12;
  EXPECT_EQ(version, (kSmall - first) / each);
  primary.log.prepare();
  EXPECT_EQ(primary.append(version + 1), 0U) << "the prepared one is not the head";
  primary.log.advance();
  EXPECT_NE(primary.append(version + 1), 0U);
}

TEST(TailwindLog, WhatIsOfUseIsCounted) {
  Primary primary;
  primary.log.prepare();
  primary.log.advance();
  Rng rng(1, 0, "log");
  std::vector<Place> live;
  for (std::uint64_t turn = 1; turn <= 2'000; ++turn) {
    if (rng.below(3) == 0 && !live.empty()) {
      std::swap(live[rng.below(live.size())], live.back());
      primary.log.drop(live.back());
      live.pop_back();
      continue;
    }
    Place place = primary.append(turn);
    if (place == 0) {
      ASSERT_NE(primary.log.prepare(), nullptr);
      primary.log.advance();
      place = primary.append(turn);
    }
    live.push_back(place);
  }
  std::uint64_t bytes = 0;
  for (const auto& [number, segment] : primary.log.segments()) bytes += segment->live_bytes;
  EXPECT_EQ(bytes, live.size() * (30 + 500 + 12));
}

// An entry counts for what it takes where it stands alone, so the entries of a batch may be dropped
// apart.
TEST(TailwindLog, ABatchCountsAChecksumForEachEntry) {
  Primary primary;
  const NewEntry none[1] = {{object(1), {}, {}}};
  Place places[2];
  EXPECT_TRUE(primary.log.append(std::span(none).first(0), places));
  EXPECT_FALSE(primary.log.append(none, places)) << "there is no head";
  primary.log.prepare();
  primary.log.advance();
  const Segment& head = *primary.log.head();
  const std::uint32_t begin = head.end();
  EntryHeader result;
  result.type = EntryType::kResult;
  const std::string text(25, 'r');
  const ByteView bytes = std::as_bytes(std::span(text));
  const NewEntry batch[2] = {{object(1), bytes.first(3), bytes}, {result, {}, bytes}};
  ASSERT_TRUE(primary.log.append(batch, places));
  EXPECT_EQ(head.live_bytes, head.end() - begin + sizeof(ChecksumEntry));
  primary.log.drop(places[0]);
  EXPECT_EQ(head.live_bytes, 30U + 25U + 12U);
  primary.log.drop(places[1]);
  EXPECT_EQ(head.live_bytes, 0U);
  EXPECT_EQ(head.entries(), 4U);
}

TEST(TailwindLog, WithoutMemoryThereIsNoNextHead) {
  Primary primary(3);  // a segment takes two
  ASSERT_NE(primary.log.prepare(), nullptr);
  primary.log.advance();
  while (primary.append(1) != 0) {
  }
  ASSERT_NE(primary.log.prepare(), nullptr);
  primary.log.advance();
  while (primary.append(1) != 0) {
  }
  EXPECT_TRUE(primary.log.head()->has_room(500)) << "the memory is full, not the head";
  EXPECT_EQ(primary.log.prepare(), nullptr);
  primary.log.free(1);
  EXPECT_NE(primary.log.prepare(), nullptr);
}

TEST(TailwindLog, TheLastSegmentHasTheLastNumberOfAPosition) {
  Bytes room(16 * std::size_t{LogMemory::kSeglet});
  LogMemory memory(room);
  Log log(memory, 42, kSmall, Position::kSegments - 2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(log.prepare(), nullptr);
    log.advance();
  }
  const Position last{log.head()->id(), kSmall};
  EXPECT_GT(last.word(), (Position{log.head()->id() - 1, kSmall}).word());
  try {
    log.prepare();
    FAIL() << "no number is left";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kExhausted);
  }
  EXPECT_THROW(log.make_survivor(), Error);
}

TEST(TailwindLog, ADigestOfAWrongLengthIsNone) {
  Bytes room(100);
  EntryHeader header;
  header.type = EntryType::kDigest;
  const Bytes numbers(20);
  EXPECT_FALSE(read_digest(write_entry(room.data(), header, {}, numbers)));
  EXPECT_EQ(read_digest(write_entry(room.data(), header, {}, {})), std::vector<std::uint64_t>());
}

}  // namespace
}  // namespace pyrdma::tailwind
