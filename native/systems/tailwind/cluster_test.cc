// The whole store: clients, servers and the coordinator, in all worlds.
#include "systems/tailwind/cluster_test.h"

#include <map>

namespace pyrdma::tailwind {
namespace {

using runtime::Kill;

class TailwindCluster
    : public testing::TestWithParam<std::tuple<std::string, Replication, std::uint32_t>> {
 protected:
  std::string world() const { return std::get<0>(GetParam()); }
  Options options() const {
    Options options = small_options(world(), std::get<1>(GetParam()));
    options.workers = std::get<2>(GetParam());
    return options;
  }
};

TEST_P(TailwindCluster, StoresReadsAndRemoves) {
  run_store(world(), 2, options(), [&](Env& env, Client& client, const Kill&) {
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
  });
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
TEST_P(TailwindCluster, RequestsThatAreCommittedTogetherKeepTheirOrder) {
  Options options = this->options();
  options.workers = 0;
  const auto counts = [&](bool is_grouped) {
    options.group_commit = is_grouped;
    std::atomic<std::uint64_t> appends{0}, writes{0};
    run_store(
        world(), 1, options,
        [&](Env&, Client& client, const Kill&) {
          const std::uint64_t table = client.create_table("first", {0});
          constexpr int kKeys = 16, kRounds = 20;
          int ended = 0;
          for (int round = 0; round < kRounds; ++round) {
            for (int key = 0; key < kKeys; ++key) {
              const std::string name = std::to_string(key), value = std::to_string(round);
              client.start(Opcode::kWrite, table, bytes_of(name), bytes_of(value),
                           [&](const Result& result) {
                             EXPECT_EQ(result.status, StoreStatus::kOk);
                             ++ended;
                           });
              client.start(Opcode::kRead, table, bytes_of(name), {},
                           [&ended, round](const Result& result) {
                             EXPECT_EQ(text_of(result.value), std::to_string(round));
                             ++ended;
                           });
            }
            client.run_until([&] { return ended == 2 * kKeys * (round + 1); }, kForever);
          }
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
      EXPECT_EQ(result.attempts, 1U);
      if (world() == "sim") {
        EXPECT_LT(env.now() - began, 3 * options.idle_sleep);
      }
    }
    EXPECT_EQ(client.view().servers.size(), options.servers) << "nobody was taken for dead";
  });
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, TailwindCluster,
    testing::Combine(testing::ValuesIn(std::vector<std::string>{"sim", "shm"}),
                     testing::Values(Replication::kRamcloud, Replication::kTailwind),
                     testing::Values(0U, 2U)),
    [](const auto& param_info) {
      return std::get<0>(param_info.param) + "_" +
             std::string(
                 kReplicationNames[static_cast<std::size_t>(std::get<1>(param_info.param))]) +
             "_" + std::to_string(std::get<2>(param_info.param));
    });

}  // namespace
}  // namespace pyrdma::tailwind
