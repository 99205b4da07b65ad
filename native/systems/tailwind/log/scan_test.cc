// Algorithm 1 over replicas that were torn at each byte, placed in any order, damaged, or hostile.
#include "systems/tailwind/log/scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/hostile_test.h"
#include "base/rng.h"
#include "systems/tailwind/log/replica_test.h"

namespace pyrdma::tailwind {
namespace {

/// Objects A and B, each written with its checksum, as in figure 5.
struct Figure5 {
  Figure5() {
    replica.append(object(1), "A", "the value of A");
    of_a = replica.end();
    replica.append(object(2), "B", "the value of B");
  }
  Replica replica{256};
  std::uint64_t of_a;
};

TEST(TailwindScan, ACompleteWriteIsFound) {
  const Figure5 f;
  const Scan found = scan(f.replica.bytes());
  EXPECT_EQ(found.valid, f.replica.end());
  EXPECT_EQ(found.entries, 2U);
  EXPECT_EQ(found.end, ScanEnd::kNoEntry);
  std::string keys;
  for_entries(f.replica.bytes(), found.valid, [&](const Entry& entry, std::uint64_t) {
    keys += static_cast<char>(entry.key().front());
  });
  EXPECT_EQ(keys, "AB");
}

// The write of B ends after any byte, so within its header, its contents or its checksum.
TEST(TailwindScan, AWriteThatEndsEarlyIsNoWrite) {
  const Figure5 f;
  for (std::uint64_t end = f.of_a; end < f.replica.end(); ++end) {
    Bytes torn(f.replica.bytes().begin(), f.replica.bytes().end());
    std::fill(torn.begin() + static_cast<std::ptrdiff_t>(end), torn.end(), std::byte{0});
    const bool is_whole = std::ranges::equal(torn, f.replica.bytes());  // the rest were zeros
    EXPECT_EQ(scan(torn).valid, is_whole ? f.replica.end() : f.of_a) << "ends at " << end;
    EXPECT_EQ(scan(torn).entries, is_whole ? 2U : 1U);
  }
}

// A write is placed in any order. So its headers and its checksum may be there without a value.
TEST(TailwindScan, AWriteWithoutItsValueIsNoWrite) {
  const Figure5 f;
  Bytes torn(f.replica.bytes().begin(), f.replica.bytes().end());
  const std::uint64_t value = f.of_a + sizeof(EntryHeader) + 1;
  torn[value] = torn[value + 1] = std::byte{0};
  EXPECT_EQ(scan(torn).valid, f.of_a);
  EXPECT_EQ(scan(torn, Bug::kContentsUnchecked).valid, f.replica.end());
}

// Several entries of one write have one checksum entry: all of them survive or none.
TEST(TailwindScan, ABatchThatEndsEarlyIsNoBatch) {
  Replica replica(512);
  replica.append(object(1), "first", "an older write");
  const std::uint64_t before = replica.end();
  constexpr std::array<std::string_view, 3> kValues{"a value", "", "another value"};
  replica.append_batch(2, kValues);
  EXPECT_EQ(replica.end() - before, 3 * (30 + 1) + 7 + 13 + 12);
  EXPECT_EQ(scan(replica.bytes()).valid, replica.end());
  EXPECT_EQ(scan(replica.bytes()).entries, 4U);
  for (std::uint64_t end = before; end < replica.end(); ++end) {
    Bytes torn(replica.bytes().begin(), replica.bytes().end());
    std::fill(torn.begin() + static_cast<std::ptrdiff_t>(end), torn.end(), std::byte{0});
    const bool is_whole = std::ranges::equal(torn, replica.bytes());  // the rest were zeros
    EXPECT_EQ(scan(torn).valid, is_whole ? replica.end() : before) << "ends at " << end;
    EXPECT_EQ(scan(torn).entries, is_whole ? 4U : 1U) << "ends at " << end;
  }
}

// Words of 8 bytes arrive in any order, so some of those behind a missing one may be there.
TEST(TailwindScan, AWriteThatLacksAnyWordIsNoWrite) {
  const Figure5 f;
  Rng rng(1, 0, "words");
  const std::uint64_t first = f.of_a / 8, words = f.replica.end() / 8 + 1 - first;
  int missing = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::uint64_t mask = rng() | (rng.below(4) == 0 ? rng() | rng() : 0);
    Bytes torn(f.replica.bytes().begin(), f.replica.bytes().end());
    for (std::uint64_t word = 0; word < words; ++word) {
      const std::uint64_t from = std::max((first + word) * 8, f.of_a);
      if ((mask >> word & 1) == 0)
        std::fill_n(torn.begin() + static_cast<std::ptrdiff_t>(from), (first + word + 1) * 8 - from,
                    std::byte{0});
    }
    const bool is_whole = std::ranges::equal(torn, f.replica.bytes());
    missing += !is_whole;
    ASSERT_EQ(scan(torn).valid, is_whole ? f.replica.end() : f.of_a) << std::hex << mask;
  }
  EXPECT_GT(missing, 10'000);
}

TEST(TailwindScan, AnyFlippedBitEndsTheScanBeforeItsWrite) {
  const Figure5 f;
  Bytes damaged(f.replica.bytes().begin(), f.replica.bytes().end());
  for (std::uint64_t bit = 0; bit < f.replica.end() * 8; ++bit) {
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_EQ(scan(damaged).valid, bit / 8 < f.of_a ? 0 : f.of_a) << "bit " << bit;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
  }
}

TEST(TailwindScan, AnEmptyOrAFullReplicaEndsItself) {
  EXPECT_EQ(scan({}).valid, 0U);
  EXPECT_EQ(scan({}).end, ScanEnd::kFull);
  const Bytes zeros(100);
  EXPECT_EQ(scan(zeros).valid, 0U);
  EXPECT_EQ(scan(zeros).end, ScanEnd::kNoEntry);
  Figure5 f;
  const ByteView full = f.replica.bytes().first(f.replica.end());
  EXPECT_EQ(scan(full).valid, full.size());
  EXPECT_EQ(scan(full).end, ScanEnd::kFull);
}

/// Returns a version such that the checksum of the header is 0. The checksum is linear in each bit,
/// so the bits of the version can make it anything.
std::uint64_t version_of_zero(ByteView like) {
  Bytes header(like.begin(), like.end());
  const auto sum_of = [&](std::uint64_t version) {
    std::memcpy(header.data() + offsetof(EntryHeader, version), &version, sizeof version);
    return crc32c(header);
  };
  struct Row {
    std::uint32_t sum;
    std::uint64_t version;
  };
  std::vector<Row> rows;  // each has a highest bit that the others lack
  std::uint32_t rest = sum_of(0);
  const std::uint32_t base = rest;
  for (int bit = 0; bit < 64; ++bit) {
    Row row{sum_of(std::uint64_t{1} << bit) ^ base, std::uint64_t{1} << bit};
    for (const Row& known : rows) {
      if ((row.sum ^ known.sum) < row.sum) row = {row.sum ^ known.sum, row.version ^ known.version};
    }
    if (row.sum != 0) {
      rows.push_back(row);
      std::ranges::sort(rows, std::greater<>(), &Row::sum);
    }
  }
  std::uint64_t version = 0;
  for (const Row& row : rows) {
    if ((rest ^ row.sum) < rest) {
      rest ^= row.sum;
      version ^= row.version;
    }
  }
  EXPECT_EQ(sum_of(version), 0U);
  return version;
}

// A zero would be taken for memory that nobody has written: the torn write below would be valid.
TEST(TailwindScan, AChecksumIsNeverZero) {
  Replica replica(256);
  EntryHeader header = object(0);
  const Bytes zeros(2);
  Bytes room(64);
  const ByteView key = ByteView(zeros).first(1), value = ByteView(zeros).last(1);
  header.version = version_of_zero(write_entry(room.data(), header, key, value).header());
  replica.append(header, std::string(1, '\0'), std::string(1, '\0'));
  EXPECT_EQ(scan(replica.bytes()).valid, replica.end());
  EXPECT_EQ(scan(replica.bytes()).checksum, 1U);
  Bytes torn(replica.bytes().begin(), replica.bytes().end());
  torn[replica.end() - sizeof(std::uint32_t)] = std::byte{0};
  EXPECT_EQ(scan(torn).valid, 0U);
}

std::vector<std::string> good_replicas() {
  std::vector<std::string> texts;
  for (const std::size_t values : {0U, 1U, 3U, 20U}) {
    Replica replica(4096);
    for (std::size_t i = 0; i < values; ++i)
      replica.append(object(i), "key" + std::to_string(i), std::string(i * 9, 'v'));
    const auto* bytes = reinterpret_cast<const char*>(replica.bytes().data());
    texts.emplace_back(bytes, replica.end() + values);
  }
  return texts;
}

void scan_any(std::string_view text) {
  const ByteView bytes = std::as_bytes(std::span(text));
  const Scan found = scan(bytes);
  PYRDMA_MUST(found.valid <= found.ended_at && found.ended_at <= bytes.size());
  std::uint64_t entries = 0, at = 0;
  for_entries(bytes, found.valid, [&](const Entry& entry, std::uint64_t offset) {
    entries += entry.is_whole() && offset >= at;
    at = offset + entry.size();
  });
  PYRDMA_MUST(entries == found.entries && at <= found.valid);
  const Scan again = scan(bytes.first(found.valid));
  PYRDMA_MUST(again.valid == found.valid && again.end == ScanEnd::kFull);
}

PYRDMA_HOSTILE(TailwindReplica, good_replicas(), scan_any)

}  // namespace
}  // namespace pyrdma::tailwind
