// A cleaner that compacts while PUTs wait for a backup, and then a backup and the primary die.
#include <map>
#include <string>

#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::SimCluster;

constexpr int kCompactedKeys = 1000;
constexpr int kReplaced = 60;  // of them

std::string compacted_key(int key) { return "key " + std::to_string(key); }
std::string compacted_value(int key, int turn) {
  return std::to_string(turn) + "/" + std::string(2500, static_cast<char>('a' + key % 26));
}

struct Loss {
  std::uint64_t compactions = 0;  // while PUTs waited
  int acknowledged = 0;           // of those PUTs
  int lost = 0;                   // keys with an older value than was acknowledged, or with none
};

/// Node 0 has all keys, and its replicas at nodes 1 and 2. It cannot reach node 2 while it replaces
/// objects, so nothing of that is committed. Then node 1 dies, whose closed replicas others get
/// from the primary's memory, and then the primary: as many deaths as the store has replicas.
Loss overwritten_and_killed(Replication replication, Bugs bugs) {
  Options options = small_options("sim", replication);
  options.servers = options.coordinator = 6;
  options.placement = Placement::kGroups;
  options.workers = kReplaced;  // each waits with a PUT
  options.buffers = 64;
  options.log_bytes = 4U << 20;
  options.clean_below = 0.5;
  options.call_timeout = 50 * kMillisecond;  // the PUTs wait, and are not sent again
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  Loss loss;
  run_store(
      cluster, options, kSecond,
      [&](Env& env, Client& client, OpenStore& store) {
        const std::uint64_t table = client.create_table("first", {0});
        const auto pass = [&](Time time) {
          client.run_until([] { return false; }, env.now() + time);
        };
        std::map<int, int> acknowledged;  // by key
        const auto put = [&](int key, int turn) {
          client.start(Opcode::kWrite, table, bytes_of(compacted_key(key)),
                       bytes_of(compacted_value(key, turn)), [&, key, turn](const Result& result) {
                         if (result.status == StoreStatus::kOk) acknowledged[key] = turn;
                       });
        };
        for (int key = 0; key < kCompactedKeys; ++key) {
          put(key, 1);
          client.run_until([&] { return client.under_way() < 16; }, kForever);
        }
        client.run_until([&] { return client.under_way() == 0; }, kForever);
        const std::uint64_t before = store.servers[0]->log().cleaner_counters().compactions;
        cluster.block(0, 2, kSecond);
        cluster.block(2, 0, kSecond);
        for (int key = 0; key < kReplaced; ++key) put(key, 2);
        pass(10 * kMillisecond);
        const std::uint64_t epoch = store.servers[0]->epoch();
        cluster.kill(1);
        client.run_until([&] { return store.servers[0]->epoch() > epoch; },
                         env.now() + 20 * kMillisecond);
        pass(5 * kMillisecond);
        ASSERT_NE(store.servers[0], nullptr);
        loss.compactions = store.servers[0]->log().cleaner_counters().compactions - before;
        for (int key = 0; key < kReplaced; ++key) loss.acknowledged += acknowledged[key] == 2;
        cluster.kill(0);
        std::map<int, int> promised = acknowledged;
        Client reader(env, options, 1, kSecond);
        for (int key = 0; key < kCompactedKeys; ++key) {
          const Result result = reader.read(table, bytes_of(compacted_key(key)));
          const bool is_there = result.status == StoreStatus::kOk &&
                                (text_of(result.value) == compacted_value(key, 1) ||
                                 text_of(result.value) == compacted_value(key, 2));
          const int turn = is_there ? text_of(result.value)[0] - '0' : 0;
          loss.lost += turn < promised[key];
        }
      },
      bugs);
  return loss;
}

class TailwindCompactionSim : public testing::TestWithParam<Replication> {};

TEST_P(TailwindCompactionSim, WhatWaitsForACommitReplacesNothing) {
  const Loss loss = overwritten_and_killed(GetParam(), {});
  EXPECT_GT(loss.compactions, 0U);
  EXPECT_EQ(loss.acknowledged, 0);
  EXPECT_EQ(loss.lost, 0);
}

TEST_P(TailwindCompactionSim, ACompactionThatDoesNotWaitLosesObjects) {
  EXPECT_GT(overwritten_and_killed(GetParam(), Bug::kCleanedBeforeCommit).lost, 0);
}

INSTANTIATE_TEST_SUITE_P(All, TailwindCompactionSim,
                         testing::Values(Replication::kRamcloud, Replication::kTailwind),
                         [](const auto& each) {
                           return std::string(
                               kReplicationNames[static_cast<std::size_t>(each.param)]);
                         });

}  // namespace
}  // namespace pyrdma::tailwind
