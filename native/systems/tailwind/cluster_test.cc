// The whole store: clients, servers and the coordinator, in all worlds.
#include "systems/tailwind/cluster_test.h"

#include <array>
#include <cstdlib>
#include <map>

#include "base/error_test.h"

namespace pyrdma::tailwind {
namespace {

using runtime::Kill;

using Case = std::tuple<std::string, Replication, std::uint32_t>;  // the last: workers

class TailwindCluster : public testing::TestWithParam<Case> {
 protected:
  std::string world() const { return std::get<0>(GetParam()); }
  Options options() const {
    Options options = small_options(world(), std::get<1>(GetParam()));
    options.workers = std::get<2>(GetParam());
    return options;
  }
};

std::string case_name(const testing::TestParamInfo<Case>& param) {
  const auto& [world, replication, workers] = param.param;
  return world + "_" + std::string(kReplicationNames[static_cast<std::size_t>(replication)]) + "_" +
         std::to_string(workers);
}

void store_read_and_remove(Env& env, Client& client, const Kill&) {
  const std::uint64_t table = client.create_table("first");
  const std::string mine = "of node " + std::to_string(env.node()) + "/";
  std::map<std::string, std::string> model;
  Rng rng = env.rng("test");
  for (int i = 0; i < 300; ++i) {
    const std::string key = mine + std::to_string(rng.below(40));
    const auto draw = rng.below(10);
    if (draw < 5) {
      const std::string value(rng.below(9000), static_cast<char>('a' + i % 26));
      const Result result = client.write(table, bytes_of(key), bytes_of(value));
      ASSERT_EQ(result.status, StoreStatus::kOk);
      model[key] = value;
    } else if (draw < 6) {
      const Result result = client.remove(table, bytes_of(key));
      ASSERT_EQ(result.status, model.erase(key) != 0 ? StoreStatus::kOk : StoreStatus::kNoObject);
    } else {
      const Result result = client.read(table, bytes_of(key));
      const auto known = model.find(key);
      ASSERT_EQ(result.status, known != model.end() ? StoreStatus::kOk : StoreStatus::kNoObject);
      if (known != model.end()) {
        ASSERT_EQ(text_of(result.value), known->second);
      }
    }
  }
}

TEST_P(TailwindCluster, StoresReadsAndRemoves) {
  run_store(world(), 2, options(), store_read_and_remove);
}

// Real verbs, whose nodes cannot be killed here. An emulated guest is slow.
class TailwindVerbs : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TailwindVerbs);

TEST_P(TailwindVerbs, StoreReadAndRemove) {
  for (const Replication replication : {Replication::kRamcloud, Replication::kTailwind}) {
    Options options = small_options(GetParam(), replication);
    options.workers = 0;
    options.ping_timeout = options.call_timeout = 60 * kSecond;
    options.lease = 600 * kSecond;
    run_store(GetParam(), 1, options, store_read_and_remove);
  }
}

TEST_P(TailwindCluster, ALostServerIsRecovered) {
  run_store(world(), 1, options(), [&](Env& env, Client& client, const Kill& kill) {
    const std::uint64_t table = client.create_table("first");
    const auto key = [](int i) { return "key " + std::to_string(i); };
    for (int i = 0; i < 600; ++i) {
      const Result result =
          client.write(table, bytes_of(key(i)), bytes_of(std::string(500, 'x') + key(i)));
      ASSERT_EQ(result.status, StoreStatus::kOk);
    }
    for (int i = 0; i < 600; i += 3) client.remove(table, bytes_of(key(i)));
    kill(1);
    const Time killed = env.now();
    for (int i = 0; i < 600; ++i) {
      const Result result = client.read(table, bytes_of(key(i)));
      ASSERT_EQ(result.status, i % 3 == 0 ? StoreStatus::kNoObject : StoreStatus::kOk) << i;
      if (i % 3 != 0) {
        ASSERT_EQ(text_of(result.value), std::string(500, 'x') + key(i));
      }
    }
    if (world() == "sim") {
      EXPECT_LT(env.now() - killed, 50 * kMillisecond);
    }
    for (int i = 0; i < 100; ++i) {
      const Result result = client.write(table, bytes_of(key(i)), bytes_of("again"));
      ASSERT_EQ(result.status, StoreStatus::kOk);
    }
  });
}

// Requests that arrive together share a write. Retries, reads of what is not committed and removals
// are among them.
class TailwindGroupCommit : public TailwindCluster {};

TEST_P(TailwindGroupCommit, KeepsTheOrderOfRequests) {
  Options options = this->options();
  const auto counts = [&](bool is_grouped) {
    options.group_commit = is_grouped;
    std::atomic<std::uint64_t> appends{0}, writes{0};
    run_store(
        world(), 1, options,
        [&](Env&, Client& client, const Kill&) {
          const std::uint64_t table = client.create_table("first", {0});
          constexpr std::size_t kKeys = 16, kRounds = 20;
          std::size_t ended = 0, in_order = 0;
          for (std::size_t round = 0; round < kRounds; ++round) {
            std::array<Result, kKeys> written, found;
            for (std::size_t key = 0; key < kKeys; ++key) {
              const std::string name = std::to_string(key), value = std::to_string(round);
              const auto start = [&](Opcode opcode, ByteView data, Result& end) {
                client.start(opcode, table, bytes_of(name), data,
                             [&end, &ended](const Result& result) {
                               end = result;
                               ++ended;
                             });
              };
              start(Opcode::kWrite, bytes_of(value), written.at(key));
              start(Opcode::kRead, {}, found.at(key));
            }
            client.run_until([&] { return ended == 2 * kKeys * (round + 1); }, kForever);
            for (std::size_t key = 0; key < kKeys; ++key) {
              EXPECT_EQ(written.at(key).status, StoreStatus::kOk);
              // A read may overtake an update that is sent again.
              if (written.at(key).attempts + found.at(key).attempts > 2) continue;
              EXPECT_EQ(text_of(found.at(key).value), std::to_string(round));
              ++in_order;
            }
          }
          EXPECT_GT(in_order, world() == "sim" ? kKeys * (kRounds - 1) : 0);
          EXPECT_EQ(client.remove(table, bytes_of("1")).status, StoreStatus::kOk);
          EXPECT_EQ(client.read(table, bytes_of("1")).status, StoreStatus::kNoObject);
        },
        [&](Server& server) {
          const ReplicationCounters counters = server.log().counters();
          appends += counters.appends;
          writes += counters.writes + counters.write_rpcs;
        });
    EXPECT_GE(appends, 320U);
    return std::pair(appends.load(), writes.load());
  };
  const auto [appends, writes] = counts(false);
  const auto [grouped_appends, grouped_writes] = counts(true);
  if (world() == "sim") {
    EXPECT_EQ(grouped_appends, appends);
    EXPECT_LT(2 * grouped_writes, writes);
  }
}

// Its threads sleep, and wake for pings in time.
TEST_P(TailwindCluster, AnIdleStoreAnswersSoon) {
  Options options = this->options();
  options.idle_after = 2 * options.ping_interval;
  run_store(world(), 1, options, [&](Env& env, Client& client, const Kill&) {
    const std::uint64_t table = client.create_table("first");
    client.connect(table);
    for (int i = 0; i < 5; ++i) {
      env.sleep_until(env.now() + 3 * options.idle_after / 2);
      const Time began = env.now();
      const Result result = client.write(table, bytes_of("key"), bytes_of("value"));
      ASSERT_EQ(result.status, StoreStatus::kOk);
      if (world() == "sim") {  // a machine may stall until a lease is over
        EXPECT_EQ(result.attempts, 1U);
        EXPECT_LT(env.now() - began, 3 * options.idle_sleep);
      }
    }
    EXPECT_EQ(client.view().servers.size(), options.servers) << "nobody was taken for dead";
  });
}

TEST(TailwindClientSim, SaysWhyTheCoordinatorRefusesATable) {
  const Options options = small_options("sim", Replication::kTailwind);
  run_store("sim", 1, options, [&](Env& env, Client&, const Kill&) {
    Client client(env, options, 1, 50 * kMillisecond);
    EXPECT_TRUE(refuses([&] { client.create_table(std::string(256, 'n')); }, ErrorCode::kTimeout,
                        {"256", "255"}));
  });
}

// A member of its group that it has never met may stay away.
TEST(TailwindGroupsSim, AServerComesBackWhileOneOfItsGroupIsDown) {
  Options options = small_options("sim", Replication::kTailwind);
  options.servers = 5;
  options.coordinator = 5;
  options.replicas = 3;
  options.placement = Placement::kGroups;
  fabric::sim::SimCluster cluster(runtime::sim_options(options.servers + 2));
  run_store(cluster, options, patience("sim"), [&](Env&, Client& client) {
    const std::uint64_t first = client.create_table("first", {3, 4});
    const auto write = [&](std::uint64_t table) {
      for (int i = 0; i < 20; ++i) {
        const Result result =
            client.write(table, bytes_of("key " + std::to_string(i)), bytes_of("value"));
        EXPECT_EQ(result.status, StoreStatus::kOk);
      }
    };
    try {
      write(first);
      cluster.kill(4);
      write(first);
      cluster.expect_restart(3);
      cluster.kill(3);
      cluster.restart(3);
      write(first);  // others have recovered what it had
      client.await_servers(4);
      write(client.create_table("second", {3}));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  });
}

// Each new table is a sync of the coordinator's disk. All of them together take much longer than a
// lease.
TEST(TailwindLeasesSim, WaitForNoDisk) {
  constexpr std::uint32_t kCreators = 16, kEach = 4;
  const Options options = small_options("sim", Replication::kTailwind);
  fabric::sim::SimOptions simulation = runtime::sim_options(options.servers + 2);
  simulation.profile.storage_sync_us = 200;
  fabric::sim::SimCluster cluster(simulation);
  run_store(cluster, options, kSecond, [&](Env& env, Client& client) {
    const std::uint64_t table = client.create_table("first");
    const auto key = [](int i) { return "key " + std::to_string(i); };
    for (int i = 0; i < 40; ++i) client.write(table, bytes_of(key(i)), bytes_of("value"));
    std::uint32_t created = 0;
    std::vector<std::unique_ptr<Thread>> creators;
    for (std::uint32_t c = 1; c <= kCreators; ++c) {
      creators.push_back(env.spawn("creator", [&, c] {
        Client own(env, options, c, kSecond);
        for (std::uint32_t i = 0; i < kEach; ++i, ++created)
          own.create_table(std::to_string(c) + "/" + std::to_string(i));
      }));
    }
    const Time begin = env.now();
    Time longest = 0;
    int reads = 0;
    while (created != kCreators * kEach) {
      const Time asked = env.now();
      EXPECT_EQ(client.read(table, bytes_of(key(reads++ % 40))).status, StoreStatus::kOk);
      longest = std::max(longest, env.now() - asked);
    }
    EXPECT_GT(env.now() - begin, 20 * options.lease);
    EXPECT_LT(longest, options.lease / 4);
    for (const auto& creator : creators) creator->join();
  });
}

std::vector<std::string> verbs_if_wanted() {
  if (std::getenv("PYRDMA_TEST_VERBS") == nullptr) return {};
  return {"verbs"};
}
INSTANTIATE_TEST_SUITE_P(Worlds, TailwindVerbs, testing::ValuesIn(verbs_if_wanted()),
                         [](const auto& world) { return world.param; });

INSTANTIATE_TEST_SUITE_P(Worlds, TailwindCluster,
                         testing::Combine(testing::ValuesIn(std::vector<std::string>{"sim", "shm"}),
                                          testing::Values(Replication::kRamcloud,
                                                          Replication::kTailwind),
                                          testing::Values(0U, 2U)),
                         case_name);

INSTANTIATE_TEST_SUITE_P(Worlds, TailwindGroupCommit,
                         testing::Combine(testing::ValuesIn(std::vector<std::string>{"sim", "shm"}),
                                          testing::Values(Replication::kRamcloud,
                                                          Replication::kTailwind),
                                          testing::Values(0U)),
                         case_name);

}  // namespace
}  // namespace pyrdma::tailwind
