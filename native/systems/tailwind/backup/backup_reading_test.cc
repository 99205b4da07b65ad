// What a backup tells those who recover a dead primary's log: torn replicas, and the entries of
// ranges.
#include <algorithm>

#include "base/rng.h"
#include "systems/tailwind/backup/backup_world_test.h"

namespace pyrdma::tailwind {
namespace {

constexpr ServerId kDead = BackupWorld::kPrimary;

class TailwindBackupTornReplica : public testing::TestWithParam<bool> {};

/// With the parameter the CPU of the backup writes, as RAMCloud's does.
TEST_P(TailwindBackupTornReplica, IsValidUpToItsLastWholeEntry) {
  BackupWorld world;
  Replica replica = segment(kDead, 1);
  replica.append(object(1), "key", "first");
  const std::uint64_t whole = replica.end();
  replica.append(object(2), "key", "second, which is torn");
  std::uint32_t life = 0;
  for (std::uint64_t end = whole; end <= replica.end(); end += 3, ++life) {
    end = std::min(end, replica.end());
    const ServerId dead{1, life};
    const Replica begin = segment(kDead, 1);
    const ByteView torn = written(replica).first(end).subspan(begin.end());
    OpenRequest request = open_request({1, 1}, written(begin));
    request.is_written_by_cpu = GetParam();
    const OpenAnswer opened = world.service->open(dead, request);
    ASSERT_EQ(opened.status, BackupStatus::kOk);
    if (GetParam()) {
      const auto offset = static_cast<std::uint32_t>(begin.end());
      ASSERT_EQ(world.service->write(dead, {{1, 1}, offset, torn}), BackupStatus::kOk);
    } else {
      ASSERT_EQ(world.rdma_write(opened.buffer, torn, begin.end()), fabric::Status::kSuccess);
    }
    const auto held = world.held(dead);
    ASSERT_EQ(held.size(), 1U);
    EXPECT_EQ(held.at(1).valid, end == replica.end() ? end : whole);
    EXPECT_EQ(held.at(1).entries, end == replica.end() ? 4U : 3U);
    EXPECT_FALSE(held.at(1).is_closed);
    EXPECT_EQ(held.at(1).digest, std::vector<std::uint64_t>{1});
    world.service->forget(dead);
    ASSERT_TRUE(world.await(0, life + 1));
  }
  EXPECT_GT(life, 20U);
}

INSTANTIATE_TEST_SUITE_P(By, TailwindBackupTornReplica, testing::Bool(),
                         [](const auto& by) { return by.param ? "cpu" : "nic"; });

TEST(TailwindBackupReading, AReplicaThatWasClosedWithOtherMetadataIsLeftOut) {
  BackupWorld world;
  world.disk().set_full_until(to_picos(kSecond));
  const Replica replica = segment(kDead, 1);
  CloseRequest request = close_request({1, 1}, replica);
  ++request.checksum;
  world.open({1, 1}, replica);
  EXPECT_EQ(world.service->close(kDead, request), BackupStatus::kOk);
  EXPECT_TRUE(world.held().empty());
  const std::vector<std::string> problems = world.service->problems();
  EXPECT_TRUE(std::ranges::any_of(problems, [](const std::string& problem) {
    return problem.find("damaged") != std::string::npos;
  }));
  Bytes storage;
  EXPECT_EQ(world.service->read_replica({kDead, 1, request.end, 0, {}}, storage).status,
            BackupStatus::kUnknown);
}

/// An entry of the model.
struct Written {
  EntryType type = EntryType::kObject;
  std::uint64_t table = 0, hash = 0;
  std::uint32_t end = 0;
  Bytes bytes;
};
/// Appends `count` random entries to a segment.
std::vector<Written> fill(Replica& replica, Rng& rng, int count) {
  std::vector<Written> all;
  for (int i = 0; i < count; ++i) {
    Written entry;
    entry.table = 1 + rng.below(3);
    std::string key = "key " + std::to_string(rng.below(50));
    std::string value(rng.below(60), 'v');
    EntryHeader header;
    header.type =
        std::array{EntryType::kObject, EntryType::kTombstone, EntryType::kResult}[rng.below(3)];
    header.table = entry.table;
    header.version = static_cast<std::uint64_t>(i);
    entry.hash = key_hash(entry.table, std::as_bytes(std::span(key)));
    if (header.type == EntryType::kResult) {
      header.table = 77;  // the client
      value.insert(0, reinterpret_cast<const char*>(&entry.hash), sizeof entry.hash);
      value.insert(0, reinterpret_cast<const char*>(&entry.table), sizeof entry.table);
      key.clear();
    }
    const std::uint64_t before = replica.end();
    replica.append(header, key, value);
    entry.type = header.type;
    const ByteView bytes =
        written(replica).subspan(before).first(replica.end() - before - sizeof(ChecksumEntry));
    entry.bytes.assign(bytes.begin(), bytes.end());
    entry.end = static_cast<std::uint32_t>(before + bytes.size());
    all.push_back(std::move(entry));
  }
  return all;
}
std::vector<Tablet> random_tablets(Rng& rng, std::uint64_t segment_number,
                                   const std::vector<Written>& entries) {
  std::vector<Tablet> tablets(1 + rng.below(3));
  for (Tablet& tablet : tablets) {
    tablet.range.table = 1 + rng.below(4);
    tablet.range.first = rng();
    tablet.range.last = rng.below(2) == 0 ? ~std::uint64_t{0} : rng();
    tablet.since = {segment_number - 1 + rng.below(2), entries[rng.below(entries.size())].end};
    if (rng.below(4) == 0) tablet.since = {segment_number + 1, 0};
  }
  return tablets;
}
/// All entries that the service returns, in as many answers as it takes.
Bytes read_all(BackupService& service, ReadReplicaRequest request) {
  Bytes all, storage;
  while (request.from < request.valid) {
    const ReadReplicaAnswer answer = service.read_replica(request, storage);
    EXPECT_EQ(answer.status, BackupStatus::kOk);
    if (answer.status != BackupStatus::kOk || answer.next <= request.from) {
      ADD_FAILURE() << "no progress at " << request.from;
      return all;
    }
    all.insert(all.end(), answer.entries.begin(), answer.entries.end());
    request.from = answer.next;
  }
  EXPECT_EQ(request.from, request.valid);
  return all;
}

TEST(TailwindBackupReading, EntriesOfRangesAreThoseOfAModel) {
  BackupWorld world;
  Rng rng(5);
  std::map<std::uint64_t, std::vector<Written>> model;
  std::map<std::uint64_t, std::uint32_t> ends;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    Replica replica = segment(kDead, number);
    model[number] = fill(replica, rng, 120);
    ends[number] = static_cast<std::uint32_t>(replica.end());
    world.open({number, number}, replica);
    if (number == 1) {
      EXPECT_EQ(world.close({1, 1}, replica), BackupStatus::kOk);
    }
  }
  ASSERT_TRUE(world.await(1, 1)) << "the first one is read from disk, the second one from memory";
  EXPECT_EQ(world.held().size(), 2U);
  std::size_t found = 0, left_out = 0;
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t number = 1 + rng.below(2);
    const auto& entries = model[number];
    // Also fewer bytes than are valid: another replica has no more.
    const Written& last = entries[rng.below(entries.size())];
    const auto valid = rng.below(2) == 0
                           ? ends[number]
                           : last.end + static_cast<std::uint32_t>(sizeof(ChecksumEntry));
    const auto tablets = random_tablets(rng, number, entries);
    Bytes expected;
    for (const Written& entry : entries) {
      bool is_wanted = false;
      for (const Tablet& tablet : tablets) {
        const bool is_new = number != tablet.since.segment ? number > tablet.since.segment
                                                           : entry.end > tablet.since.end;
        is_wanted =
            is_wanted || (is_new && entry.table == tablet.range.table &&
                          entry.hash >= tablet.range.first && entry.hash <= tablet.range.last);
      }
      if (entry.end > valid || !is_wanted) {
        ++left_out;
        continue;
      }
      expected.insert(expected.end(), entry.bytes.begin(), entry.bytes.end());
      ++found;
    }
    EXPECT_EQ(read_all(*world.service, {kDead, number, valid, 0, tablets}), expected);
  }
  EXPECT_GT(found, 500U);
  EXPECT_GT(left_out, 500U);
}

TEST(TailwindBackupReading, LongReplicasComeInSeveralAnswers) {
  Options options = backup_options();
  options.segment_bytes = 4U << 20;
  BackupWorld world(options);
  Replica replica = segment(kDead, 1, options.segment_bytes);
  Bytes expected;
  for (const std::size_t bytes : {300'000U, 300'000U, 1U << 20, 500'000U, 500'000U, 500'000U}) {
    const std::uint64_t before = replica.end();
    replica.append(object(1), "a key", std::string(bytes, 'v'));
    const ByteView entry =
        written(replica).subspan(before).first(replica.end() - before - sizeof(ChecksumEntry));
    expected.insert(expected.end(), entry.begin(), entry.end());
  }
  world.open({1, 1}, replica);
  EXPECT_EQ(world.held().at(1).valid, replica.end());
  ReadReplicaRequest request{
      kDead, 1, static_cast<std::uint32_t>(replica.end()), 0, {{{1}, {}, {}}}};
  EXPECT_EQ(read_all(*world.service, request), expected);
  std::vector<std::size_t> sizes;
  Bytes storage;
  for (; request.from < request.valid; sizes.push_back(storage.size()))
    request.from = world.service->read_replica(request, storage).next;
  ASSERT_EQ(sizes.size(), 4U);
  EXPECT_GT(sizes[1], BackupService::kMostAnswer) << "a single entry";
  EXPECT_LE(sizes[0], BackupService::kMostAnswer);
  EXPECT_LE(sizes[2], BackupService::kMostAnswer);
}

TEST(TailwindBackupReading, ImpossibleRequestsAreRefused) {
  BackupWorld world;
  Replica replica = segment(kDead, 1);
  Rng rng(1);
  fill(replica, rng, 20);
  EntryHeader false_header = object(1);  // within a value; its checksum is wrong
  false_header.checksum = 1;
  replica.append(object(1), "key",
                 {reinterpret_cast<const char*>(&false_header), sizeof false_header});
  const auto end = static_cast<std::uint32_t>(replica.end());
  world.open({1, 1}, replica);
  world.service->stop_writes(kDead);
  Bytes storage;
  const auto status = [&](const ReadReplicaRequest& request) {
    return world.service->read_replica(request, storage).status;
  };
  EXPECT_EQ(status({kDead, 2, 10, 0, {}}), BackupStatus::kUnknown);
  EXPECT_EQ(status({{1, 9}, 1, 10, 0, {}}), BackupStatus::kUnknown);
  EXPECT_EQ(status({kDead, 1, end + 1, 0, {}}), BackupStatus::kOutOfBounds);
  EXPECT_EQ(status({kDead, 1, ~0U, 0, {}}), BackupStatus::kOutOfBounds);
  EXPECT_EQ(status({kDead, 1, end, end + 1, {}}), BackupStatus::kOutOfBounds);
  EXPECT_EQ(status({kDead, 1, end, end, {}}), BackupStatus::kOk);
  // From the middle of an entry on: nothing is returned that is no entry.
  for (std::uint32_t from = 0; from < end; ++from) {
    const std::vector<Tablet> tablets{{{1}, {}, {}}, {{2}, {}, {}}, {{3}, {}, {}}};
    const ReadReplicaAnswer answer =
        world.service->read_replica({kDead, 1, end, from, tablets}, storage);
    if (answer.status != BackupStatus::kOk) continue;
    for (ByteView rest = answer.entries; !rest.empty();) {
      const Entry entry = read_entry(rest);
      ASSERT_TRUE(entry && entry.is_whole()) << from;
      rest = rest.subspan(entry.size());
    }
  }
}

TEST(TailwindBackupReading, WhatIsForgottenIsGone) {
  BackupWorld world;
  const ServerId other{1, 1};
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const Replica replica = segment(kDead, number);
    world.open({number, 1}, replica);
    if (number < 3) {
      EXPECT_EQ(world.close({number, 1}, replica), BackupStatus::kOk);
    }
  }
  world.open({1, 1}, segment(other, 1), other);
  EXPECT_EQ(world.held().size(), 3U);
  world.service->forget(kDead);
  EXPECT_TRUE(world.held().empty());
  Bytes storage;
  EXPECT_EQ(world.service->read_replica({kDead, 1, 1, 0, {}}, storage).status,
            BackupStatus::kUnknown);
  ASSERT_TRUE(world.await(0, 3)) << "the buffers are free again";
  for (std::uint64_t number = 2; number <= 4; ++number)
    world.open({number, number}, segment(other, number), other);
  EXPECT_EQ(world.held(other).size(), 4U);
  EXPECT_EQ(world.service->open(kDead, open_request({9, 9}, {})).status, BackupStatus::kRefused);
}

}  // namespace
}  // namespace pyrdma::tailwind
