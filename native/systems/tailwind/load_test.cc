// A store under load: what servers tell of their time, updates that must be sent again, and more
// updates than can be served.
#include <algorithm>
#include <numeric>
#include <string>

#include "base/error_test.h"
#include "systems/tailwind/cluster_test.h"

namespace pyrdma::tailwind {
namespace {

using fabric::sim::SimCluster;

/// Keeps so many updates of the first `keys` keys under way until `count` have ended.
void keep_busy(Env& env, Client& client, std::uint64_t table, int depth, int keys, int count,
               std::size_t bytes, const std::function<void(Time took, const Result&)>& on_end) {
  const std::string value(bytes, 'v');
  for (int begun = 0; begun < count; ++begun) {
    const Time begin = env.now();
    client.start(Opcode::kWrite, table, bytes_of("key " + std::to_string(begun * 7919 % keys)),
                 bytes_of(value), [&env, &on_end, begin](const Result& result) {
                   on_end(env.now() - begin, result);
                 });
    client.run_until([&] { return client.under_way() < static_cast<std::size_t>(depth); },
                     kForever);
  }
  client.run_until([&] { return client.under_way() == 0; }, kForever);
}

/// Cores that the dispatch threads of servers without workers have used, by server.
std::vector<double> busy_cores(Replication replication, bool group_commit, int depth, int owners) {
  Options options = small_options("sim", replication);
  options.workers = 0;
  options.group_commit = group_commit;
  options.log_bytes = 32U << 20;
  options.replicas = 3;
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  std::vector<double> cores;
  run_store(cluster, options, kSecond, [&](Env& env, Client& client, OpenStore& store) {
    std::vector<NodeId> nodes(static_cast<std::size_t>(owners));
    std::iota(nodes.begin(), nodes.end(), 0);
    const std::uint64_t table = client.create_table("first", nodes);
    std::vector<Time> before;
    for (Server* server : store.servers) before.push_back(server->dispatcher().times().dispatch);
    const Time began = env.now();
    keep_busy(env, client, table, depth, 400, 3000, 100, [](Time, const Result&) {});
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Time busy = store.servers[i]->dispatcher().times().dispatch - before[i];
      cores.push_back(static_cast<double>(busy) / static_cast<double>(env.now() - began));
    }
  });
  return cores;
}

class TailwindBusySim : public testing::TestWithParam<Replication> {};

TEST_P(TailwindBusySim, ADispatchThreadIsBusyForNoMoreThanTheTimeThatPasses) {
  for (const bool group_commit : {false, true})
    for (const int depth : {1, 4, 32})
      for (const int owners : {1, 4})
        for (const double cores : busy_cores(GetParam(), group_commit, depth, owners))
          EXPECT_LE(cores, 1.01) << "depth " << depth << ", owners " << owners;
}

TEST_P(TailwindBusySim, AThreadThatAlwaysServesIsBusyAllTheTime) {
  EXPECT_GT(busy_cores(GetParam(), false, 32, 1)[0], 0.95);
}

INSTANTIATE_TEST_SUITE_P(All, TailwindBusySim,
                         testing::Values(Replication::kRamcloud, Replication::kTailwind),
                         [](const auto& each) {
                           return std::string(
                               kReplicationNames[static_cast<std::size_t>(each.param)]);
                         });

// The cleaner makes room for some updates, which come again.
TEST(TailwindLoadSim, AnUpdateThatWaitsForRoomIsSentAgainSoon) {
  Options options = small_options("sim", Replication::kTailwind);
  options.segment_bytes = 256U << 10;
  options.buffers = 64;
  options.workers = 3;
  const Options defaults;  // the times
  options.retry_pause = defaults.retry_pause;
  options.call_timeout = defaults.call_timeout;
  options.lease = defaults.lease;
  options.ping_interval = defaults.ping_interval;
  options.ping_timeout = defaults.ping_timeout;
  SimCluster cluster(runtime::sim_options(options.servers + 2));
  run_store(cluster, options, kSecond, [&](Env& env, Client& client, OpenStore&) {
    const std::uint64_t table = client.create_table("first", {0});
    const int keys = static_cast<int>(options.log_bytes * 82 / 100 / 1100);
    keep_busy(env, client, table, 8, keys, keys, 1000, [](Time, const Result&) {});
    int again = 0;
    keep_busy(env, client, table, 8, keys, 20'000, 1000, [&](Time time, const Result& result) {
      EXPECT_EQ(result.status, StoreStatus::kOk);
      if (result.attempts != 2) return;
      ++again;
      EXPECT_LT(time, 300 * kMicrosecond);
    });
    EXPECT_GT(again, 10);
  });
}

// A backup is down, and no other one can take its place, so updates wait and are sent again and
// again. Others must still hear that the primary lives.
TEST(TailwindLoadSim, AFloodOfUpdatesThatWaitLeavesThePrimaryAlive) {
  for (const int flood : {128, 700}) {
    Options options = small_options("sim", Replication::kTailwind);
    options.replicas = 3;
    options.workers = 6;
    options.segment_bytes = 1U << 20;
    options.log_bytes = 16U << 20;
    options.call_timeout = 3 * kMillisecond;
    SimCluster cluster(runtime::sim_options(options.servers + 2));
    run_store(cluster, options, kSecond, [&](Env& env, Client& client, OpenStore& store) {
      const std::uint64_t table = client.create_table("first", {0});
      const ServerId primary = store.servers[0]->id();
      int done = 0;
      cluster.kill(1);
      for (int key = 0; key < flood; ++key)
        client.start(Opcode::kWrite, table, bytes_of("key " + std::to_string(key)),
                     bytes_of(std::string(100, 'v')),
                     [&](const Result& result) { done += result.status == StoreStatus::kOk; });
      client.run_until([] { return false; }, env.now() + 400 * kMillisecond);
      EXPECT_EQ(done, 0);
      ASSERT_NE(store.servers[0], nullptr);
      EXPECT_EQ(store.servers[0]->id(), primary) << flood << " updates under way";
      EXPECT_TRUE(store.coordinator->view().is_up(primary));
      cluster.restart_later(1, kMillisecond);
      client.run_until([&] { return client.under_way() == 0; }, env.now() + 50 * kMillisecond);
      EXPECT_EQ(done, flood);
    });
    EXPECT_EQ(cluster.branches().contains("tailwind/refused_early"), flood == 700);
    EXPECT_TRUE(cluster.branches().contains("tailwind/refused_late"));
  }
}

// Nothing comes any more then.
TEST(TailwindLoadSim, AnOverrunCompletionQueueEndsItsOwnerWithAnError) {
  const auto load = [](Env& env, Client& client) {
    const std::uint64_t table = client.create_table("first");
    keep_busy(env, client, table, 8, 100, 100'000, 100, [](Time, const Result&) {});
  };
  bool was_log = false, was_transport = false;
  for (std::uint64_t seed = 1; seed < 20 && !(was_log && was_transport); ++seed) {
    const auto run = [&] {
      fabric::sim::SimOptions simulation =
          runtime::sim_options(small_options("sim", Replication::kTailwind).servers + 2);
      simulation.seed = seed;
      simulation.faults.enable(Fault::cq_overrun, 10);
      simulation.time_limit = 5 * kSecond;
      SimCluster cluster(simulation);
      run_store(cluster, small_options("sim", Replication::kTailwind), kSecond, load);
    };
    EXPECT_TRUE(refuses(run, ErrorCode::kUnavailable, {"has overrun"})) << seed;
    const bool is_of_log = refuses(run, ErrorCode::kUnavailable, {"has overrun", "the log of"});
    was_log = was_log || is_of_log;
    was_transport = was_transport || !is_of_log;
  }
  EXPECT_TRUE(was_log && was_transport);
}

// Else the pings and the answers of servers would find none, and a server would be taken for dead.
TEST(TailwindLoadSim, RequestsOfClientsLeaveReceivesToServers) {
  constexpr std::uint32_t kReceives = 16;
  const Options options = small_options("sim", Replication::kTailwind);
  SimCluster cluster(runtime::sim_options(3));
  bool is_over = false;
  std::uint32_t of_clients = 0;
  cluster.run([&](Env& env) {
    const ServerId self =
        env.node() == 1 ? ServerId::of_client(1, 0, 0) : ServerId::of_server(env.node(), 0, 0);
    Transport transport(env, options, self, kReceives);
    if (env.node() == 2) env.sleep_until(env.now() + kMillisecond);
    for (std::uint32_t i = 0; i < (env.node() == 1 ? 2 * kReceives : env.node() / 2); ++i)
      transport.call({0, 0}, Opcode::kRead, {}, kForever, [](CallEnd, ByteView) {});
    std::vector<std::unique_ptr<Incoming>> unanswered;
    for (const Time end = env.now() + 10 * kMillisecond; !is_over && env.now() < end;) {
      transport.keep_time();
      transport.poll(unanswered);
      env.sleep_until(env.now() + kMicrosecond);
      is_over = is_over || std::ranges::any_of(unanswered, [](const auto& request) {
                  return request->from.node == 2;
                });
    }
    if (env.node() == 0) of_clients = static_cast<std::uint32_t>(unanswered.size());
  });
  EXPECT_TRUE(is_over);
  EXPECT_EQ(of_clients, kReceives / 2 + 1);
}

}  // namespace
}  // namespace pyrdma::tailwind
