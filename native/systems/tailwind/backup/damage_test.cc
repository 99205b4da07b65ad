// What is damaged at a backup before it is on disk: the data of a buffer, and what the table says
// of it.
#include <algorithm>
#include <cstring>

#include "systems/tailwind/backup/backup_world_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::Crash;

constexpr ServerId kOwner = BackupWorld::kPrimary;

Replica filled_segment() {
  Replica replica = segment(kOwner, 1);
  for (int i = 0; i < 20; ++i) replica.append(object(1), "key", std::string(100, 'v'));
  return replica;
}

/// The data of a replica come, changed by `change`, and its close. Nothing of it goes to the disk,
/// and the backup can name it.
void expect_damaged(const std::function<void(std::vector<std::byte>&)>& change) {
  BackupWorld world;
  const Replica begin = segment(kOwner, 1), whole = filled_segment();
  const auto buffer = world.open({1, 1}, begin);
  std::vector<std::byte> data(written(whole).begin(), written(whole).end());
  data.erase(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(begin.end()));
  change(data);
  if (!data.empty()) {
    EXPECT_EQ(world.rdma_write(buffer, data, begin.end()), fabric::Status::kSuccess);
  }
  EXPECT_EQ(world.close({1, 1}, whole), BackupStatus::kOk);
  world.wait(5 * kMillisecond);
  EXPECT_EQ(world.service->counters().flushes, 0U);
  EXPECT_EQ(world.service->counters().damaged, 1U);
  ASSERT_EQ(world.service->problems().size(), 1U);
  EXPECT_NE(world.service->problems()[0].find("of " + std::to_string(whole.end()) + " B"),
            std::string::npos);
  const auto damaged = world.service->take_damaged();
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(damaged[0].primary, kOwner);
  EXPECT_EQ(damaged[0].name.segment, 1U);
  EXPECT_EQ(damaged[0].name.attempt, 1U);
  EXPECT_TRUE(world.service->take_damaged().empty()) << "each is named once";
  // Its primary has another one, and frees it.
  EXPECT_EQ(world.service->free(kOwner, {1, 1}), BackupStatus::kOk);
  ASSERT_TRUE(world.await(0, 1));
  EXPECT_TRUE(world.held().empty());
}

TEST(TailwindBackupDamage, ABufferWithAFlippedBitIsNotFlushed) {
  expect_damaged([](std::vector<std::byte>& data) { data[700] ^= std::byte{1}; });
}
TEST(TailwindBackupDamage, ABufferWithoutItsDataIsNotFlushed) {
  expect_damaged([](std::vector<std::byte>& data) { data.clear(); });
}

/// The file of the table of buffers among what a battery has saved: the only one of its length.
std::string table_file(BackupWorld& world) {
  for (int number = 0;; ++number) {
    const std::string name = "memory-" + std::to_string(number);
    if (!world.env().storage().exists(name)) return {};
    if (world.env().storage().open(name)->size() == BufferPool::table_bytes(world.options.buffers))
      return name;
  }
}

/// The table after a power failure, behind a replica that was opened, and got another version if
/// `is_newer`.
Bytes saved_table(bool is_newer) {
  BackupWorld world;
  world.open({1, 1}, filled_segment());
  if (is_newer) {
    EXPECT_EQ(world.service->set_version(kOwner, {{1, 1}, 7}), BackupStatus::kOk);
  }
  world.world.cluster.kill(0, Crash::kHostBattery);
  world.stop();
  world.world.cluster.restart(0);
  world.wait(kMillisecond);
  const auto file = world.env().storage().open(table_file(world));
  Bytes bytes(file->size());
  file->read(0, bytes);
  return bytes;
}

// The power fails amid the stores of a new version. Memory then has a part of the cache lines, and
// the table says what it said before or what it says now.
TEST(TailwindBackupDamage, APowerFailureAmidAStoreToTheTableLosesNoReplica) {
  const Bytes before = saved_table(false), after = saved_table(true);
  ASSERT_EQ(before.size(), after.size());
  const auto [first, other] = std::ranges::mismatch(before, after);
  ASSERT_NE(first, before.end());
  const auto begin = static_cast<std::size_t>(first - before.begin());
  std::size_t end = before.size();
  while (before[end - 1] == after[end - 1]) --end;
  int old_versions = 0;
  for (std::size_t cut = begin; cut <= end; cut += 4) {
    BackupWorld world;
    world.open({1, 1}, filled_segment());
    EXPECT_EQ(world.service->set_version(kOwner, {{1, 1}, 7}), BackupStatus::kOk);
    world.world.cluster.kill(0, Crash::kHostBattery);
    world.stop();
    world.world.cluster.restart(0);
    world.wait(kMillisecond);
    Bytes torn = before;
    std::copy_n(after.begin(), cut, torn.begin());
    world.env().storage().open(table_file(world))->write(0, torn);
    world.start();
    const auto held = world.held();
    ASSERT_EQ(held.size(), 1U) << "torn at byte " << cut;
    EXPECT_TRUE(held.at(1).version == 0 || held.at(1).version == 7);
    EXPECT_EQ(held.at(1).valid, filled_segment().end());
    old_versions += held.at(1).version == 0;
  }
  EXPECT_GT(old_versions, 2);
}

}  // namespace
}  // namespace pyrdma::tailwind
