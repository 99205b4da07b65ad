// What a backup has after crashes of its node, and its disk's faults.
#include <array>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "systems/tailwind/backup/backup_world_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::Crash;
constexpr ServerId kWriter = BackupWorld::kPrimary;

std::string frame_file(std::uint64_t number) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "replica-%llx-%llx",
                static_cast<unsigned long long>(kWriter.number()),
                static_cast<unsigned long long>(number));
  return name.data();
}
void flip(Storage& storage, const std::string& name, std::uint64_t offset) {
  const auto file = storage.open(name);
  std::array<std::byte, 1> byte{};
  ASSERT_EQ(file->read(offset, byte), 1U) << name;
  byte[0] ^= std::byte{1};
  file->write(offset, byte);
}
Replica with_objects(std::uint64_t number) {
  Replica replica = segment(kWriter, number);
  replica.append(object(number), "key", std::string(3000, 'v'));
  return replica;
}
/// Opens, closes and flushes segments 1 to `count`.
void flush_segments(BackupWorld& world, std::uint64_t count) {
  for (std::uint64_t number = 1; number <= count; ++number) {
    const Replica replica = with_objects(number);
    OpenRequest request = open_request({number, number}, written(replica));
    request.version = 10 + number;
    ASSERT_EQ(world.service->open(kWriter, request).status, BackupStatus::kOk);
    ASSERT_EQ(world.close({number, number}, replica), BackupStatus::kOk);
    ASSERT_TRUE(world.await(number, number));
  }
}

TEST(TailwindBackupRestart, WhatWasFlushedSurvivesAndWhatWasOpenDoesNot) {
  for (const Crash crash : {Crash::kProcess, Crash::kHost}) {
    BackupWorld world;
    flush_segments(world, 2);
    world.open({3, 3}, with_objects(3));
    world.crash(crash);
    EXPECT_TRUE(world.service->problems().empty());
    EXPECT_EQ(world.close({3, 3}, with_objects(3)), BackupStatus::kUnknown);
    const auto held = world.held();
    ASSERT_EQ(held.size(), 2U);
    for (const auto& [number, replica] : held) {
      EXPECT_TRUE(replica.is_closed);
      EXPECT_EQ(replica.version, 10 + number);
      EXPECT_EQ(replica.valid, with_objects(number).end());
      EXPECT_EQ(replica.entries, 3U);
      EXPECT_EQ(replica.digest.has_value(), number == 2) << "only the newest one's is of use";
    }
    EXPECT_EQ(held.at(2).digest, (std::vector<std::uint64_t>{1, 2}));
  }
}

TEST(TailwindBackupRestart, WhatWasFreedDoesNotComeBack) {
  BackupWorld world;
  flush_segments(world, 3);
  EXPECT_EQ(world.service->free(kWriter, {2, 2}), BackupStatus::kOk);
  world.wait(10 * kMillisecond);
  world.crash(Crash::kHost);
  EXPECT_EQ(world.held().count(2), 0U);
  EXPECT_EQ(world.held().size(), 2U);
  world.service->forget(kWriter);
  EXPECT_TRUE(world.held().empty());
  world.wait(10 * kMillisecond);
  world.crash(Crash::kHost);
  EXPECT_TRUE(world.held().empty());
}

TEST(TailwindBackupRestart, AnotherAttemptsFileStaysUntilTheNewOneIsThere) {
  BackupWorld world;
  flush_segments(world, 1);
  Replica longer = with_objects(1);
  longer.append(object(2), "more", "value");
  world.open({1, 7}, longer);
  EXPECT_FALSE(world.held().at(1).is_closed);
  world.crash(Crash::kProcess);
  EXPECT_EQ(world.held().at(1).valid, with_objects(1).end());

  BackupWorld other;
  flush_segments(other, 1);
  other.open({1, 7}, longer);
  EXPECT_EQ(other.close({1, 7}, longer), BackupStatus::kOk);
  ASSERT_TRUE(other.await(2, 2));
  other.crash(Crash::kHost);
  EXPECT_EQ(other.held().at(1).valid, longer.end());

  BackupWorld freed;
  flush_segments(freed, 1);
  freed.open({1, 7}, longer);
  EXPECT_EQ(freed.service->free(kWriter, {1, 7}), BackupStatus::kOk);
  freed.wait(10 * kMillisecond);
  freed.crash(Crash::kHost);
  EXPECT_TRUE(freed.held().empty()) << "the file of the older attempt goes with the new one";
}

/// Fills a world with replicas of all kinds, after buffers have been renewed, so that their order
/// is another one than at the start. Segment 4 waits for the disk.
void fill_for_battery(BackupWorld& world) {
  flush_segments(world, 3);
  world.disk().set_full_until(to_picos(world.primary_env().now() + kSecond));
  const Replica closed = with_objects(4);
  world.open({4, 14}, closed);
  ASSERT_EQ(world.close({4, 14}, closed), BackupStatus::kOk);
  const auto buffer = world.open({5, 15}, segment(kWriter, 5));
  const Replica written_by_nic = with_objects(5);
  const std::uint64_t begin = segment(kWriter, 5).end();
  ASSERT_EQ(world.rdma_write(buffer, written(written_by_nic).subspan(begin), begin),
            fabric::Status::kSuccess);
  const Replica copied = with_objects(6);
  const auto first = static_cast<std::uint32_t>(segment(kWriter, 6).end());
  OpenRequest request = open_request({6, 16}, written(copied).first(first));
  request.is_copy = true;
  request.is_written_by_cpu = true;
  request.version = 66;
  ASSERT_EQ(world.service->open(kWriter, request).status, BackupStatus::kOk);
  ASSERT_EQ(world.service->write(kWriter, {request.name, first, written(copied).subspan(first)}),
            BackupStatus::kOk);
}

TEST(TailwindBackupRestart, ABatterySavesWhatIsInBuffers) {
  BackupWorld world;
  // Regions of others, some of a buffer's size, stand among the buffers.
  const fabric::Side other(world.world, 0, world.options.segment_bytes);
  fill_for_battery(world);
  const fabric::Side another(world.world, 0, world.options.segment_bytes + BufferPool::kLabelBytes);
  world.crash(Crash::kHostBattery);
  EXPECT_FALSE(world.disk().exists("memory-0"));
  for (const std::string& problem : world.service->problems())
    EXPECT_NE(problem.find("flushing"), std::string::npos) << problem;
  const ServerId stranger{1, 9};
  world.open({1, 1}, segment(stranger, 1), stranger);
  EXPECT_EQ(world.service->open(stranger, open_request({2, 2}, {})).status, BackupStatus::kNoBuffer)
      << "three buffers are in use again";
  const auto held = world.held();
  ASSERT_EQ(held.size(), 6U);
  for (std::uint64_t number = 4; number <= 6; ++number) {
    EXPECT_EQ(held.at(number).is_closed, number == 4);
    EXPECT_EQ(held.at(number).is_copy, number == 6);
    EXPECT_EQ(held.at(number).version, number == 6 ? 66U : 0U);
    EXPECT_EQ(held.at(number).valid, with_objects(number).end());
    EXPECT_EQ(held.at(number).entries, 3U);
    EXPECT_EQ(held.at(number).digest->size(), number);
  }
  world.disk().set_full_until(0);
  ASSERT_TRUE(world.await(1, 1)) << "what waited for the disk is flushed";
  world.crash(Crash::kProcess);
  EXPECT_EQ(world.held().size(), 6U) << "those that are not on disk are still saved";
  world.service->forget(kWriter);
  world.wait(10 * kMillisecond);
  EXPECT_FALSE(world.disk().exists("saved-0-0")) << "nobody needs them any more";
}

/// What is held of what a battery saved when the process has died once more, so long after its
/// start.
std::size_t held_after_another_death(Time moment, Bugs bugs = {}) {
  BackupWorld world(backup_options(), bugs);
  fill_for_battery(world);
  world.crash(Crash::kHostBattery);
  world.disk().set_full_until(0);
  world.wait(moment);
  world.crash(Crash::kProcess);
  EXPECT_TRUE(world.service->problems().empty());
  return world.held().size();
}
TEST(TailwindBackupRestart, WhatABatterySavedSurvivesAProcessThatDiesAgain) {
  for (Time moment = 0; moment < 40 * kMicrosecond; moment += kMicrosecond)
    EXPECT_EQ(held_after_another_death(moment), 6U) << moment << " ns after the start";
  EXPECT_LT(held_after_another_death(0, Bug::kSavedMemoryRemoved), 6U) << "the bug is not found";
}

TEST(TailwindBackupRestart, SavedMemoryGoesWithItsLastReplica) {
  BackupWorld world;
  fill_for_battery(world);
  world.crash(Crash::kHostBattery);
  world.disk().set_full_until(0);
  const ServerId stranger{1, 9};
  world.open({1, 1}, segment(stranger, 1), stranger);
  world.crash(Crash::kHostBattery);
  // Segment 4 is flushed, 5 has another attempt that is flushed, 6 is freed.
  ASSERT_TRUE(world.await(1, 1));
  const Replica fifth = with_objects(5);
  world.open({5, 25}, fifth);
  ASSERT_EQ(world.close({5, 25}, fifth), BackupStatus::kOk);
  ASSERT_TRUE(world.await(2, 2));
  world.wait(kMillisecond);
  EXPECT_TRUE(world.disk().exists("saved-1-0")) << "of segment 6 and of the stranger's";
  EXPECT_EQ(world.service->free(kWriter, {6, 16}), BackupStatus::kOk);
  world.wait(kMillisecond);
  EXPECT_TRUE(world.disk().exists("saved-1-0"));
  world.service->forget(stranger);
  world.wait(10 * kMillisecond);
  EXPECT_FALSE(world.disk().exists("saved-1-0"));
  EXPECT_FALSE(world.disk().exists("saved-0-0")) << "a later failure had all of it";
  EXPECT_EQ(world.held().size(), 5U);
}

TEST(TailwindBackupRestart, TheBatterySavesMemoryAgainAfterARestart) {
  BackupWorld world;
  fill_for_battery(world);
  world.crash(Crash::kHostBattery);
  world.crash(Crash::kHostBattery);
  EXPECT_EQ(world.held().size(), 6U);
  world.crash(Crash::kHost);
  EXPECT_EQ(world.held().size(), 6U) << "what the battery saved is on the disk";
}

/// Expects three closed replicas on disk and so many of the three in saved buffers.
void expect_saved(BackupWorld& world, std::size_t count, std::initializer_list<const char*> said) {
  EXPECT_EQ(world.held().size(), 3 + count);
  std::string all;
  for (const std::string& problem : world.service->problems()) all += problem + "\n";
  for (const char* word : said) EXPECT_NE(all.find(word), std::string::npos) << word << ": " << all;
  EXPECT_EQ(all.find("not used") != std::string::npos, count < 3) << all;
}

TEST(TailwindBackupRestart, WhatAStartCannotUseOfSavedMemoryStays) {
  BackupWorld world;
  fill_for_battery(world);
  world.options.buffers = 2;
  world.crash(Crash::kHostBattery);
  expect_saved(world, 2, {"all 2 buffers are in use", "start with more"});
  world.options.buffers = 4;
  world.options.segment_bytes = 32U << 10;
  world.crash(Crash::kProcess);
  expect_saved(world, 0, {"16384", "segment_bytes=16384"});
  world.options.segment_bytes = 16U << 10;
  world.crash(Crash::kProcess);
  expect_saved(world, 3, {});
  world.crash(Crash::kProcess);
  expect_saved(world, 3, {});
}

TEST(TailwindBackupRestart, TheLatestSavedMemoryIsUsedFirst) {
  BackupWorld world;
  fill_for_battery(world);
  world.options.buffers = 2;
  world.crash(Crash::kHostBattery);
  expect_saved(world, 2, {"start with more"});
  // The primary is recovered elsewhere, and others come.
  world.service->forget(kWriter);
  world.disk().set_full_until(0);
  world.wait(10 * kMillisecond);
  const ServerId other{1, 1};
  world.open({1, 1}, segment(other, 1), other);
  world.open({2, 2}, segment(other, 2), other);
  world.crash(Crash::kHostBattery);
  EXPECT_EQ(world.held(other).size(), 2U);
}

/// A file of saved memory that cannot be read.
class UnreadableStorage final : public Storage {
 public:
  std::unique_ptr<File> open(std::string_view) override {
    throw Error(ErrorCode::kUnavailable, "I/O error");
  }
  bool exists(std::string_view name) override { return name == "saved-0-0"; }
  void remove(std::string_view) override {}
  void rename(std::string_view, std::string_view) override {}
  void sync() override {}
};

TEST(TailwindBackupRestart, SavedMemoryThatCannotBeReadNowStays) {
  UnreadableStorage storage;
  std::vector<std::string> problems;
  const auto saved = find_saved_buffers(storage, 16U << 10, problems);
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_TRUE(saved[0].buffers.empty());
  EXPECT_FALSE(saved[0].has_all);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("saved-0-0"), std::string::npos) << problems[0];
}

TEST(TailwindBackupRestart, ACrashAtAnyMomentOfAFlushLeavesAWholeReplicaOrNone) {
  const Replica replica = with_objects(1);
  for (const Crash crash : {Crash::kProcess, Crash::kHost, Crash::kHostBattery}) {
    int lost = 0, kept = 0;
    for (Time moment = 0; moment < 20 * kMicrosecond; moment += 300) {
      BackupWorld world;
      world.open({1, 1}, replica);
      ASSERT_EQ(world.close({1, 1}, replica), BackupStatus::kOk);
      world.wait(moment);
      world.crash(crash);
      const auto held = world.held();
      EXPECT_TRUE(world.service->problems().empty());
      ++(held.empty() ? lost : kept);
      if (held.empty()) continue;
      EXPECT_TRUE(held.at(1).is_closed);
      EXPECT_EQ(held.at(1).valid, replica.end());
    }
    EXPECT_GT(kept, 0);
    EXPECT_EQ(lost > 0, crash != Crash::kHostBattery);
  }
}

TEST(TailwindBackupRestart, DamagedSavedMemoryIsNamed) {
  BackupWorld world;
  fill_for_battery(world);
  world.world.cluster.kill(0, Crash::kHostBattery);
  world.stop();
  // The labels of all buffers are damaged.
  const std::uint64_t size = world.options.segment_bytes + BufferPool::kLabelBytes;
  int damaged = 0;
  world.world.cluster.restart(0);
  world.wait(kMillisecond);
  for (int i = 0; world.disk().exists("memory-" + std::to_string(i)); ++i) {
    const std::string name = "memory-" + std::to_string(i);
    if (world.disk().open(name)->size() != size) continue;
    flip(world.disk(), name, world.options.segment_bytes);
    ++damaged;
  }
  EXPECT_EQ(damaged, 4);
  world.start();
  EXPECT_EQ(world.service->problems().size(), 3U);
  EXPECT_EQ(world.held().size(), 3U);
}

TEST(TailwindBackupRestart, DamagedFilesAreRefusedAndNamed) {
  const std::uint64_t end = Frames::kHeaderBlock + with_objects(2).end();
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{20}, std::uint64_t{40},
                                     Frames::kHeaderBlock + 10, end - 1, end - 2000}) {
    BackupWorld world;
    flush_segments(world, 3);
    world.stop();
    flip(world.disk(), frame_file(2), offset);
    world.start();
    ASSERT_EQ(world.service->problems().size(), 1U) << offset;
    EXPECT_NE(world.service->problems()[0].find(frame_file(2)), std::string::npos);
    EXPECT_EQ(world.held().count(2), 0U);
    EXPECT_EQ(world.held().size(), 2U);
  }
}

TEST(TailwindBackupRestart, AFileInThePlaceOfAnotherIsRefused) {
  BackupWorld world;
  flush_segments(world, 3);
  world.stop();
  world.disk().rename(frame_file(3), frame_file(2));
  world.start();
  ASSERT_EQ(world.service->problems().size(), 1U);
  EXPECT_EQ(world.held().size(), 1U);
}

TEST(TailwindBackupRestart, ADamagedRecordOfTheIndexHidesOneReplica) {
  BackupWorld world;
  flush_segments(world, 3);
  world.stop();
  flip(world.disk(), "replicas", 32 + 9);
  world.start();
  ASSERT_EQ(world.service->problems().size(), 1U);
  EXPECT_NE(world.service->problems()[0].find("offset 32"), std::string::npos);
  const Replica fourth = with_objects(4);
  world.open({4, 4}, fourth);
  EXPECT_EQ(world.close({4, 4}, fourth), BackupStatus::kOk);
  ASSERT_TRUE(world.await(1, 1));
  world.crash(Crash::kHost);
  EXPECT_EQ(world.held().size(), 3U);
}

TEST(TailwindBackupRestart, AFileThatIsDamagedLaterIsNotRead) {
  BackupWorld world;
  flush_segments(world, 2);
  flip(world.disk(), frame_file(2), Frames::kHeaderBlock + 200);
  const auto held = world.held();
  ASSERT_EQ(held.size(), 1U);
  EXPECT_TRUE(held.at(1).digest.has_value()) << "it is the newest one now";
  EXPECT_EQ(world.service->problems().size(), 1U);
  EXPECT_EQ(world.held().size(), 1U);
  EXPECT_EQ(world.service->problems().size(), 1U) << "each problem once";
}

TEST(TailwindBackupRestart, AReplicaStaysInItsBufferWhileTheDiskIsFull) {
  BackupWorld world;
  world.disk().set_full_until(to_picos(kSecond));
  const Replica replica = with_objects(1);
  world.open({1, 1}, replica);
  EXPECT_EQ(world.close({1, 1}, replica), BackupStatus::kOk);
  world.wait(20 * kMillisecond);
  ASSERT_EQ(world.service->problems().size(), 1U);
  EXPECT_NE(world.service->problems()[0].find("flushing segment 1"), std::string::npos);
  EXPECT_EQ(world.service->counters().flushes, 0U);
  world.disk().set_full_until(0);
  ASSERT_TRUE(world.await(1, 1));
  EXPECT_TRUE(world.service->problems().empty());
  world.crash(Crash::kHost);
  EXPECT_EQ(world.held().at(1).valid, replica.end());
}

TEST(TailwindBackupRestart, WhatAFailingDiskHasFlushedSurvives) {
  for (std::uint64_t count = 5; count <= 10; ++count) {  // each has other failures
    BackupWorld world(backup_options(), {}, {{"disk_io_error", 0.3}, {"disk_torn", 0.5}});
    flush_segments(world, count);
    world.open({count + 1, count + 1}, with_objects(count + 1));
    EXPECT_EQ(world.close({count + 1, count + 1}, with_objects(count + 1)), BackupStatus::kOk);
    world.wait(static_cast<Time>(count) * kMicrosecond);
    world.crash(Crash::kHost);
    EXPECT_GT(world.world.reached(Fault::disk_io_error), 0U);
    const auto held = world.held();
    EXPECT_GE(held.size(), count);
    for (const auto& [number, replica] : held)
      EXPECT_EQ(replica.valid, with_objects(number).end()) << number << " of " << count;
    EXPECT_TRUE(world.service->problems().empty()) << world.service->problems()[0];
  }
}

TEST(TailwindBackupRestart, ReplicasOfAnEarlierLifeGoWhenTheirPrimaryNeedsThemNoMore) {
  BackupWorld world;
  flush_segments(world, 2);
  EXPECT_TRUE(world.service->inherited_logs().empty());
  world.crash(Crash::kProcess);
  EXPECT_EQ(world.service->inherited_logs(), std::vector{kWriter.number()});
  const Replica third = with_objects(3);
  world.open({3, 3}, third);
  ASSERT_EQ(world.close({3, 3}, third), BackupStatus::kOk);
  ASSERT_TRUE(world.await(1, 1));
  world.service->forget_inherited(kWriter);
  EXPECT_TRUE(world.service->inherited_logs().empty());
  world.wait(10 * kMillisecond);
  EXPECT_FALSE(world.disk().exists(frame_file(1)));
  const auto held = world.held();
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held.begin()->first, 3U);
}

}  // namespace
}  // namespace pyrdma::tailwind
