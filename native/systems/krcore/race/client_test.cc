// The operations of one client and of several, in all worlds.
#include <algorithm>
#include <map>

#include "base/rng.h"
#include "systems/krcore/race/worlds_test.h"

namespace pyrdma::krcore::race {
namespace {

TEST(KrcoreLiteDeviceSim, AQueuePairWithoutEntriesIsRefused) {
  fabric::sim::SimCluster cluster(runtime::sim_options(1));
  cluster.run([](Env& env) {
    Lite lite(env, {});
    LiteDevice device(lite);
    const auto pd = device.create_protection_domain();
    const auto completions = device.create_completion_queue(1);
    fabric::QpOptions options;
    options.send_entries = 0;
    EXPECT_TRUE(refuses(
        [&] { device.create_queue_pair(*pd, *completions, *completions, options, nullptr); },
        ErrorCode::kInvalidArgument, {"send_entries", "0"}));
  });
}

TEST_P(RaceWorlds, OneClientInsertsUpdatesAndRemoves) {
  run({1, 1, small_table()}, [](ClientNode& node) {
    const auto client = node.client();
    Bytes value;
    EXPECT_EQ(client->lookup(bytes_of("a"), value), Outcome::kMissing);
    EXPECT_EQ(client->update(bytes_of("a"), bytes_of("x")), Outcome::kMissing);
    EXPECT_EQ(client->remove(bytes_of("a")), Outcome::kMissing);
    EXPECT_EQ(client->insert(bytes_of("a"), bytes_of("first")), Outcome::kOk);
    EXPECT_EQ(client->insert(bytes_of("a"), bytes_of("other")), Outcome::kExists);
    EXPECT_EQ(client->lookup(bytes_of("a"), value), Outcome::kOk);
    EXPECT_EQ(text_of(value), "first");
    EXPECT_EQ(client->update(bytes_of("a"), bytes_of(std::string(200, 'y'))), Outcome::kOk);
    EXPECT_EQ(client->lookup(bytes_of("a"), value), Outcome::kOk);
    EXPECT_EQ(text_of(value), std::string(200, 'y'));
    EXPECT_EQ(client->insert(bytes_of("empty"), {}), Outcome::kOk);
    EXPECT_EQ(client->lookup(bytes_of("empty"), value), Outcome::kOk);
    EXPECT_TRUE(value.empty());
    EXPECT_EQ(client->remove(bytes_of("a")), Outcome::kOk);
    EXPECT_EQ(client->remove(bytes_of("a")), Outcome::kMissing);
    EXPECT_EQ(client->lookup(bytes_of("a"), value), Outcome::kMissing);
  });
}

constexpr std::uint64_t kKeys = 1500;

// Public re-implementations leave resizing out. Here the table grows to many times its first size.
TEST_P(RaceWorlds, GrowsAndKeepsAllKeys) {
  const auto grow = [](ClientNode& node) {
    const auto client = node.client();
    for (std::uint64_t i = 0; i < kKeys; ++i)
      EXPECT_EQ(client->insert(bytes_of(key_of(i)), bytes_of(std::to_string(i))), Outcome::kOk);
    Bytes value;
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      EXPECT_EQ(client->lookup(bytes_of(key_of(i)), value), Outcome::kOk) << i;
      EXPECT_EQ(text_of(value), std::to_string(i));
    }
    EXPECT_EQ(client->lookup(bytes_of(key_of(kKeys)), value), Outcome::kMissing);
    EXPECT_GE(client->global_depth(), 5U);
  };
  run({2, 1, small_table()}, grow, [](const TableAddress& table, const Regions& regions) {
    const Audit found = audit(table, regions);
    expect_whole(found);
    EXPECT_EQ(found.values.size(), kKeys);
    EXPECT_GE(found.subtables, 32U);
    EXPECT_GT(found.in_overflow, 0U);
    EXPECT_EQ(found.locked + found.frozen + found.tentative, 0U);
  });
}

// Each key has its own client, which knows what it must find. All of them split the table.
TEST_P(RaceWorlds, ClientsWithWindowsChangeTheirKeys) {
  constexpr std::uint32_t kClients = 3, kOperations = 3000;
  const auto work = [](ClientNode& node) {
    ClientOptions options;
    options.window = 8;
    options.timeout = 20 * kSecond;
    const auto client = node.client(options);
    Rng rng(7, node.number, "race keys");
    std::map<std::uint64_t, std::string> expected;
    std::map<std::uint64_t, std::uint64_t> busy;  // keys
    std::uint64_t begun = 0, ended = 0;
    struct Open {
      Kind kind;
      std::uint64_t key;
      std::string value;
    };
    std::map<std::uint64_t, Open> open;
    while (ended < kOperations) {
      while (begun < kOperations && !client->is_full()) {
        const std::uint64_t key = rng.below(300);
        if (busy.contains(key)) break;
        const Kind kind = static_cast<Kind>(rng.below(4));
        const std::string value(rng.below(200), static_cast<char>('a' + begun % 26));
        const std::string name = key_of(key) + " of " + std::to_string(node.number);
        busy[key] = begun;
        open[begun] = {kind, key, value};
        client->start(
            kind, begun++, bytes_of(name),
            kind == Kind::kInsert || kind == Kind::kUpdate ? bytes_of(value) : ByteView());
      }
      for (const Result& result : client->wait(node.env.now() + 60 * kSecond)) {
        ++ended;
        const Open op = open.at(result.tag);
        open.erase(result.tag);
        busy.erase(op.key);
        EXPECT_EQ(result.error, nullptr) << result.error->what();
        const auto known = expected.find(op.key);
        const bool is_there = known != expected.end();
        if (op.kind == Kind::kInsert) {
          EXPECT_EQ(result.outcome, is_there ? Outcome::kExists : Outcome::kOk);
          expected.try_emplace(op.key, op.value);
          continue;
        }
        EXPECT_EQ(result.outcome, is_there ? Outcome::kOk : Outcome::kMissing);
        if (!is_there) continue;
        if (op.kind == Kind::kLookup) {
          EXPECT_EQ(text_of(result.value), known->second);
        }
        if (op.kind == Kind::kUpdate) known->second = op.value;
        if (op.kind == Kind::kRemove) expected.erase(known);
      }
    }
    Bytes value;
    for (const auto& [key, text] : expected) {
      const std::string name = key_of(key) + " of " + std::to_string(node.number);
      EXPECT_EQ(client->lookup(bytes_of(name), value), Outcome::kOk) << name;
      EXPECT_EQ(text_of(value), text);
    }
  };
  run({2, kClients, small_table()}, work, [](const TableAddress& table, const Regions& regions) {
    const Audit found = audit(table, regions);
    expect_whole(found);
    EXPECT_GT(found.subtables, 4U);
    EXPECT_EQ(found.locked + found.frozen + found.tentative, 0U);
  });
}

auto worlds_above() {
#if defined(__SANITIZE_THREAD__)
  return testing::Values("shm/krcore", "shm/lite");
#else
  return testing::Values("sim/krcore", "sim/lite", "shm/krcore", "shm/lite");
#endif
}
INSTANTIATE_TEST_SUITE_P(Above, RaceWorlds, worlds_above(), [](const auto& param) {
  std::string name(param.param);
  std::ranges::replace(name, '/', '_');
  return name;
});

INSTANTIATE_TEST_SUITE_P(All, RaceWorlds, race_worlds(),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace pyrdma::krcore::race
