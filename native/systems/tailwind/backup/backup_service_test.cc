// The requests of primaries to a backup: buffers, their keys, admission, bounds and attempts.
#include "systems/tailwind/backup/backup_service.h"

#include <algorithm>

#include "systems/tailwind/backup/backup_world_test.h"

namespace pyrdma::tailwind {
namespace {

constexpr ServerId kPrimary = BackupWorld::kPrimary;

TEST(TailwindBackup, AClosedReplicaIsFlushedAndItsBufferIsZeroedWithANewKey) {
  BackupWorld world;
  Replica replica = segment(kPrimary, 1);
  const auto buffer = world.open({1, 1}, replica);
  EXPECT_EQ(buffer.length, world.options.segment_bytes);
  const std::uint64_t before = replica.end();
  replica.append(object(1), "key", "value");
  const ByteView more = written(replica).subspan(before);
  EXPECT_EQ(world.rdma_write(buffer, more, before), fabric::Status::kSuccess);
  EXPECT_EQ(world.close({1, 1}, replica), BackupStatus::kOk);
  ASSERT_TRUE(world.await(1, 1));
  EXPECT_EQ(world.rdma_write(buffer, more, before), fabric::Status::kRemoteAccess);
  const BackupCounters counters = world.service->counters();
  EXPECT_EQ(counters.opens, 1U);
  EXPECT_EQ(counters.closes, 1U);
  EXPECT_EQ(counters.bytes, replica.end());
  EXPECT_TRUE(world.service->problems().empty());
  const auto held = world.held();
  ASSERT_EQ(held.size(), 1U);
  EXPECT_TRUE(held.at(1).is_closed);
  EXPECT_EQ(held.at(1).valid, replica.end());
  EXPECT_EQ(held.at(1).entries, 3U);
  EXPECT_EQ(held.at(1).digest, std::vector<std::uint64_t>{1});
}

TEST(TailwindBackup, ABufferThatKeepsItsKeyTakesWritesOfTheLastReplica) {
  BackupWorld world(backup_options(), Bug::kBufferKeepsKey);
  const Replica replica = segment(kPrimary, 1);
  const auto buffer = world.open({1, 1}, replica);
  EXPECT_EQ(world.close({1, 1}, replica), BackupStatus::kOk);
  ASSERT_TRUE(world.await(1, 1));
  EXPECT_EQ(world.rdma_write(buffer, written(replica), 0), fabric::Status::kSuccess);
}

/// Valid bytes of a replica in a buffer that had a longer one before.
std::uint32_t valid_after_longer(Bugs bugs) {
  Options options = backup_options();
  options.buffers = 1;
  BackupWorld world(options, bugs);
  Replica longer = segment(kPrimary, 1);
  const Replica begin = longer;
  longer.append(object(1), "key", "an old value");
  world.open({1, 1}, longer);
  EXPECT_EQ(world.service->free(kPrimary, {1, 1}), BackupStatus::kOk);
  EXPECT_TRUE(world.await(0, 1));
  world.open({1, 2}, begin);
  return world.held().at(1).valid;
}
TEST(TailwindBackup, NothingOfABuffersLastReplicaIsLeft) {
  const auto begin = static_cast<std::uint32_t>(segment(kPrimary, 1).end());
  EXPECT_EQ(valid_after_longer({}), begin);
  EXPECT_GT(valid_after_longer(Bug::kBufferNotZeroed), begin) << "the bug is not found";
}

TEST(TailwindBackup, AnOpenIsRefusedWhenNoBufferIsFree) {
  BackupWorld world;
  for (std::uint64_t number = 1; number <= 4; ++number)
    world.open({number, number}, segment(kPrimary, number));
  const Replica fifth = segment(kPrimary, 5);
  EXPECT_EQ(world.service->open(kPrimary, open_request({5, 5}, written(fifth))).status,
            BackupStatus::kNoBuffer);
  EXPECT_EQ(world.service->counters().refused, 1U);
  EXPECT_EQ(world.service->free(kPrimary, {2, 2}), BackupStatus::kOk);
  ASSERT_TRUE(world.await(0, 1));
  world.open({5, 6}, fifth);
  EXPECT_EQ(world.held().size(), 4U);
}

TEST(TailwindBackup, AnOpenIsRefusedWhenTooMuchWaitsForTheDisk) {
  Options options = backup_options();
  options.flushable_bytes = 2 * options.segment_bytes;
  BackupWorld world(options);
  world.disk().set_full_until(to_picos(kSecond));
  const Replica first = segment(kPrimary, 1), third = segment(kPrimary, 3);
  world.open({1, 1}, first);
  EXPECT_EQ(world.close({1, 1}, first), BackupStatus::kOk);
  world.open({2, 2}, segment(kPrimary, 2));
  const OpenRequest request = open_request({3, 3}, written(third));
  EXPECT_EQ(world.service->open(kPrimary, request).status, BackupStatus::kNoBuffer);
  world.open({2, 4}, segment(kPrimary, 2));  // in place of the other attempt
  EXPECT_EQ(world.service->open(kPrimary, request).status, BackupStatus::kNoBuffer);
  world.disk().set_full_until(0);
  ASSERT_TRUE(world.await(1, 2));
  EXPECT_EQ(world.service->open(kPrimary, request).status, BackupStatus::kOk);
}

TEST(TailwindBackup, AFreedBufferIsMadeAnewBeforeMoreIsFlushed) {
  BackupWorld world;
  for (std::uint64_t number = 1; number <= 4; ++number)
    world.open({number, number}, segment(kPrimary, number));
  for (std::uint64_t number = 1; number <= 3; ++number)
    EXPECT_EQ(world.close({number, number}, segment(kPrimary, number)), BackupStatus::kOk);
  EXPECT_EQ(world.service->free(kPrimary, {4, 4}), BackupStatus::kOk);
  while (world.service->counters().zeroed == 0) world.wait(kMicrosecond);
  EXPECT_LE(world.service->counters().flushes, 1U) << "that was under way";
  ASSERT_TRUE(world.await(3, 4));
}

TEST(TailwindBackup, AFailedFlushIsTriedAgainWhileOthersWait) {
  Options options = backup_options();
  options.buffers = 8;
  options.retry_pause = kMicrosecond;
  BackupWorld world(options);
  world.disk().set_full_until(to_picos(kSecond));
  const auto close = [&](std::uint64_t number) {
    EXPECT_EQ(world.close({number, number}, segment(kPrimary, number)), BackupStatus::kOk);
  };
  for (std::uint64_t number = 1; number <= 8; ++number)
    world.open({number, number}, segment(kPrimary, number));
  close(1);
  world.wait(kMillisecond);
  ASSERT_EQ(world.service->problems().size(), 1U);
  world.disk().set_full_until(0);
  for (std::uint64_t number = 2; number <= 8; ++number) close(number);
  while (!world.service->problems().empty()) world.wait(kMicrosecond);
  EXPECT_LE(world.service->counters().flushes, 3U);
  ASSERT_TRUE(world.await(8, 8));
}

TEST(TailwindBackup, AHigherAttemptTakesTheBufferFromALowerOne) {
  BackupWorld world;
  const Replica replica = segment(kPrimary, 1);
  const auto old = world.open({1, 1}, replica);
  const auto buffer = world.open({1, 3}, replica);
  EXPECT_NE(buffer.rkey, old.rkey);
  const auto again = world.open({1, 3}, replica);
  EXPECT_EQ(again.rkey, buffer.rkey);
  EXPECT_EQ(again.addr, buffer.addr);
  EXPECT_EQ(world.service->counters().opens, 2U);
  ASSERT_TRUE(world.await(0, 1));
  EXPECT_EQ(world.rdma_write(old, written(replica), 0), fabric::Status::kRemoteAccess);
  EXPECT_EQ(world.rdma_write(buffer, written(replica), 0), fabric::Status::kSuccess);

  for (std::uint64_t attempt = 1; attempt <= 2; ++attempt) {
    const ReplicaName name{1, attempt};
    EXPECT_EQ(world.service->open(kPrimary, open_request(name, {})).status, BackupStatus::kUnknown);
    EXPECT_EQ(world.service->set_version(kPrimary, {name, 9}), BackupStatus::kUnknown);
    EXPECT_EQ(world.close(name, replica), BackupStatus::kUnknown);
    EXPECT_EQ(world.service->free(kPrimary, name), BackupStatus::kUnknown);
  }
  const auto held = world.held();
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held.at(1).version, 0U);
  EXPECT_FALSE(held.at(1).is_closed);
}

TEST(TailwindBackup, ALateOpenOfAFreedOrClosedReplicaMakesNone) {
  BackupWorld world;
  const Replica replica = segment(kPrimary, 1);
  const OpenRequest request = open_request({1, 1}, written(replica));
  world.open({1, 1}, replica);
  EXPECT_EQ(world.close({1, 1}, replica), BackupStatus::kOk);
  EXPECT_EQ(world.service->open(kPrimary, request).status, BackupStatus::kUnknown);
  EXPECT_EQ(world.close({1, 1}, replica), BackupStatus::kOk) << "a close that is sent again";
  EXPECT_EQ(world.service->counters().closes, 1U);
  EXPECT_EQ(world.service->free(kPrimary, {1, 1}), BackupStatus::kOk);
  EXPECT_EQ(world.service->open(kPrimary, request).status, BackupStatus::kUnknown);
  EXPECT_EQ(world.service->free(kPrimary, {1, 1}), BackupStatus::kUnknown);
  world.wait(10 * kMillisecond);
  world.stop();
  world.start();
  EXPECT_TRUE(world.held().empty()) << "its file is removed";
}

TEST(TailwindBackup, ACopyIsValidWithANewVersionOrItsClose) {
  BackupWorld world;
  OpenRequest request;
  request.is_copy = true;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const Replica replica = segment(kPrimary, number);
    request.name = {number, 1};
    request.version = 5;
    request.data = written(replica);
    EXPECT_EQ(world.service->open(kPrimary, request).status, BackupStatus::kOk);
  }
  EXPECT_EQ(world.service->set_version(kPrimary, {{1, 1}, 4}), BackupStatus::kOk);
  EXPECT_EQ(world.service->set_version(kPrimary, {{2, 1}, 6}), BackupStatus::kOk);
  EXPECT_EQ(world.close({3, 1}, segment(kPrimary, 3)), BackupStatus::kOk);
  const auto held = world.held();
  EXPECT_TRUE(held.at(1).is_copy) << "the version is an older one";
  EXPECT_EQ(held.at(1).version, 5U);
  EXPECT_FALSE(held.at(2).is_copy);
  EXPECT_EQ(held.at(2).version, 6U);
  EXPECT_FALSE(held.at(3).is_copy);
}

TEST(TailwindBackup, RequestsBeyondAReplicaAreRefused) {
  BackupWorld world;
  const std::uint32_t size = world.options.segment_bytes;
  const Bytes data(size + 1);
  EXPECT_EQ(world.service->open(kPrimary, open_request({1, 1}, data)).status,
            BackupStatus::kOutOfBounds);
  const auto buffer = world.open({1, 1}, segment(kPrimary, 1));
  EXPECT_EQ(world.rdma_write(buffer, ByteView(data).first(64), size),
            fabric::Status::kRemoteAccess);
  EXPECT_EQ(world.service->close(kPrimary, {{1, 1}, size + 1, 1, 1}), BackupStatus::kOutOfBounds);
  EXPECT_EQ(world.service->close(kPrimary, {{2, 1}, 1, 1, 1}), BackupStatus::kUnknown);
  EXPECT_EQ(world.service->write(kPrimary, {{1, 1}, 0, ByteView(data).first(1)}),
            BackupStatus::kUnknown)
      << "it is written by RDMA";

  OpenRequest request = open_request({3, 1}, ByteView(data).first(100));
  request.is_written_by_cpu = true;
  EXPECT_EQ(world.service->open(kPrimary, request).status, BackupStatus::kOk);
  for (const std::uint32_t offset : {size, ~0U}) {
    EXPECT_EQ(world.service->write(kPrimary, {{3, 1}, offset, ByteView(data).first(1)}),
              BackupStatus::kOutOfBounds);
  }
  EXPECT_EQ(world.service->write(kPrimary, {{3, 1}, 100, ByteView(data).first(size - 100)}),
            BackupStatus::kOk);
}

TEST(TailwindBackup, WritesByTheCpuCountUpToTheFirstGap) {
  BackupWorld world;
  Replica replica = segment(kPrimary, 1);
  const auto first = static_cast<std::uint32_t>(replica.end());
  OpenRequest request = open_request({1, 1}, written(replica));
  request.is_written_by_cpu = true;
  const Replica begin = replica;
  replica.append(object(1), "a", "first");
  const auto second = static_cast<std::uint32_t>(replica.end());
  replica.append(object(2), "b", "second");
  request.data = written(begin);
  EXPECT_EQ(world.service->open(kPrimary, request).status, BackupStatus::kOk);
  const ByteView all = written(replica);
  EXPECT_EQ(world.service->write(kPrimary, {{1, 1}, second, all.subspan(second)}),
            BackupStatus::kOk);
  EXPECT_EQ(world.close({1, 1}, replica), BackupStatus::kOutOfBounds) << "there is a gap";
  EXPECT_EQ(world.service->write(kPrimary, {{1, 1}, first, all.subspan(first, second - first)}),
            BackupStatus::kOk);
  EXPECT_EQ(world.service->write(kPrimary, {{1, 1}, first, all.subspan(first, 1)}),
            BackupStatus::kOk)
      << "a write that is sent again";
  const auto held = world.held();
  EXPECT_EQ(held.at(1).valid, replica.end());
  EXPECT_EQ(held.at(1).entries, 4U);
}

TEST(TailwindBackup, ADeadPrimaryIsRefusedAndOthersAreNot) {
  BackupWorld world;
  const Replica replica = segment(kPrimary, 1);
  world.open({1, 1}, replica);
  world.service->stop_writes(kPrimary);
  EXPECT_EQ(world.service->open(kPrimary, open_request({1, 1}, {})).status, BackupStatus::kRefused);
  EXPECT_EQ(world.service->open(kPrimary, open_request({2, 2}, {})).status, BackupStatus::kRefused);
  EXPECT_EQ(world.service->write(kPrimary, {{1, 1}, 0, {}}), BackupStatus::kRefused);
  EXPECT_EQ(world.service->set_version(kPrimary, {{1, 1}, 1}), BackupStatus::kRefused);
  EXPECT_EQ(world.close({1, 1}, replica), BackupStatus::kRefused);
  EXPECT_EQ(world.service->free(kPrimary, {1, 1}), BackupStatus::kRefused);
  const ServerId next_life{1, 1};
  world.open({1, 1}, segment(next_life, 1), next_life);
  EXPECT_EQ(world.held(next_life).size(), 1U);
  EXPECT_EQ(world.held().size(), 1U);
}

TEST(TailwindBackup, ThreadsOfManyPrimariesShareTheBuffers) {
  const auto world = fabric::make_world("shm", 1);
  Env& env = world->env(0);
  const auto domain = env.device().create_protection_domain();
  Options options = backup_options();
  options.buffers = 3;
  options.retry_pause = 10 * kMicrosecond;
  BackupService service(env, *domain, options);
  constexpr std::uint32_t kThreads = 4, kSegments = 6;
  std::vector<std::unique_ptr<Thread>> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.push_back(env.spawn("primary", [&, thread] {
      const ServerId self{thread, 0};
      for (std::uint64_t number = 1; number <= kSegments; ++number) {
        Replica replica = segment(self, number);
        OpenRequest request = open_request({number, number}, written(replica));
        request.is_written_by_cpu = true;
        const bool is_open =
            env.poll_until([&] { return service.open(self, request).status == BackupStatus::kOk; },
                           env.now() + 10 * kSecond);
        EXPECT_TRUE(is_open);
        const auto before = static_cast<std::uint32_t>(replica.end());
        replica.append(object(number), "key", std::string(500, static_cast<char>('a' + thread)));
        EXPECT_EQ(service.write(self, {request.name, before, written(replica).subspan(before)}),
                  BackupStatus::kOk);
        EXPECT_EQ(service.close(self, close_request(request.name, replica)), BackupStatus::kOk);
      }
    }));
  }
  threads.clear();
  EXPECT_TRUE(env.poll_until(
      [&] { return service.counters().zeroed >= std::uint64_t{kThreads} * kSegments; },
      env.now() + 10 * kSecond));
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    const Inventory inventory = service.start_reading({thread, 0});
    EXPECT_EQ(inventory.replicas.size(), kSegments);
    for (const HeldReplica& held : inventory.replicas) EXPECT_TRUE(held.is_closed);
  }
  EXPECT_TRUE(service.problems().empty());
}

}  // namespace
}  // namespace pyrdma::tailwind
