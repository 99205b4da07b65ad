// Backups that live lose replicas, or have damaged ones: others take their places.
#include <string>

#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::SimCluster;

constexpr NodeId kLosesReplicas = 1;  // and nodes 0 and 2 are the others of its group
constexpr int kLostKeys = 40;         // their log ends amid a segment

class TailwindLostReplicaSim : public testing::TestWithParam<Replication> {
 protected:
  /// Objects of node 0, whose replicas are at nodes 1 and 2, are written, then node 1 loses what
  /// `lose` says, and they are written again. The nodes `dying` die then, and the others must have
  /// all.
  void run(const std::vector<NodeId>& dying,
           const std::function<void(Server& backup, Server& primary)>& lose,
           const std::function<void(Server& backup)>& look) {
    Options options = small_options("sim", GetParam());
    options.servers = options.coordinator = 6;
    options.placement = Placement::kGroups;
    SimCluster cluster(runtime::sim_options(options.servers + 2));
    run_store(cluster, options, 200 * kMillisecond,
              [&](Env& env, Client& client, OpenStore& store) {
                const std::uint64_t table = client.create_table("first", {0});
                const auto put = [&](int turn) {
                  const std::string key = "key " + std::to_string(turn % kLostKeys);
                  const std::string value = std::string(5000, 'v') + std::to_string(turn);
                  const Result result = client.write(table, bytes_of(key), bytes_of(value));
                  EXPECT_EQ(result.status, StoreStatus::kOk);
                };
                constexpr int kTurns = 4 * kLostKeys;
                for (int turn = 0; turn < kLostKeys; ++turn) put(turn);
                lose(*store.servers[kLosesReplicas], *store.servers[0]);
                env.sleep_until(env.now() + 3 * kMillisecond);
                for (int turn = kLostKeys; turn < kTurns; ++turn) put(turn);
                env.sleep_until(env.now() + 5 * kMillisecond);
                EXPECT_TRUE(store.servers[0]->log().is_whole());
                look(*store.servers[kLosesReplicas]);
                for (const NodeId node : dying) cluster.kill(node);
                for (int key = 0; key < kLostKeys; ++key) {
                  const Result result = client.read(table, bytes_of("key " + std::to_string(key)));
                  EXPECT_EQ(text_of(result.value),
                            std::string(5000, 'v') + std::to_string(kTurns - kLostKeys + key));
                }
              });
  }
};

// Nobody notices that closed ones are gone; open ones are replaced.
TEST_P(TailwindLostReplicaSim, ABackupThatHasForgottenReplicasDoesNotStopPuts) {
  run(
      {0}, [](Server& backup, Server& primary) { backup.backup().forget(primary.id()); },
      [](Server&) {});
}

// The close of an open replica with a checksum that its bytes do not have.
TEST_P(TailwindLostReplicaSim, WhatIsDamagedBeforeItIsFlushedIsReplaced) {
  std::uint64_t closed = 0;
  run(
      {2, 0},
      [&](Server& backup, Server& primary) {
        const std::uint64_t head = primary.log().end().segment;
        for (std::uint64_t attempt = 1; attempt < 100; ++attempt)
          closed +=
              backup.backup().close(primary.id(), {{head, attempt}, 60, 1, 2}) == BackupStatus::kOk;
        EXPECT_EQ(closed, 1U);
      },
      [](Server& backup) {
        EXPECT_EQ(backup.backup().counters().damaged, 1U);
        ASSERT_EQ(backup.backup().problems().size(), 1U);
        EXPECT_NE(backup.backup().problems()[0].find("its buffer is damaged"), std::string::npos);
      });
}

// Nobody but the backup sees it, when it flushes the closed replica.
TEST_P(TailwindLostReplicaSim, WhatHasChangedInABufferIsReplaced) {
  run(
      {2, 0},
      [&](Server& backup, Server& primary) {
        const std::uint64_t head = primary.log().end().segment;
        OpenRequest again;
        OpenAnswer answer;
        for (again.name = {head, 1}; answer.status != BackupStatus::kOk; ++again.name.attempt)
          answer = backup.backup().open(primary.id(), again);
        constexpr std::uint64_t kInDigest = 70;
        *reinterpret_cast<std::byte*>(answer.buffer.addr + kInDigest) ^= std::byte{1};
      },
      [](Server& backup) { EXPECT_EQ(backup.backup().counters().damaged, 1U); });
}

INSTANTIATE_TEST_SUITE_P(All, TailwindLostReplicaSim,
                         testing::Values(Replication::kRamcloud, Replication::kTailwind),
                         [](const auto& each) {
                           return std::string(
                               kReplicationNames[static_cast<std::size_t>(each.param)]);
                         });

}  // namespace
}  // namespace pyrdma::tailwind
