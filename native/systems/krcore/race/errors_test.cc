// What is refused, what is used up, and what is gone: the errors name the value, the bound and the
// remedy.
#include <string>

#include "systems/krcore/race/worlds_test.h"

namespace pyrdma::krcore::race {
namespace {

class RaceErrors : public RaceWorlds {};

TEST_P(RaceErrors, KeysAndValuesHaveBounds) {
  run({1, 1, small_table()}, [](ClientNode& node) {
    const auto client = node.client();
    Bytes value;
    constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
    const std::string longest(32, 'k'), longer(33, 'k');
    EXPECT_TRUE(refuses([&] { client->lookup({}, value); }, kBad, {"0", "32"}));
    EXPECT_TRUE(refuses([&] { client->insert(bytes_of(longer), {}); }, kBad,
                        {"33", "32", "max_key_bytes"}));
    EXPECT_TRUE(refuses([&] { client->insert(bytes_of("k"), bytes_of(std::string(257, 'v'))); },
                        kBad, {"257", "256", "max_value_bytes"}));
    EXPECT_TRUE(refuses([&] { client->start(Kind::kLookup, 0, {}); }, kBad, {"0", "32"}));
    EXPECT_EQ(client->under_way(), 0U);
    EXPECT_EQ(client->insert(bytes_of(longest), bytes_of(std::string(256, 'v'))), Outcome::kOk);
    EXPECT_EQ(client->lookup(bytes_of(longest), value), Outcome::kOk);
    EXPECT_EQ(value.size(), 256U);
  });
}

TEST_P(RaceErrors, OptionsHaveBounds) {
  run({1, 1, small_table()}, [](ClientNode& node) {
    constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
    const auto with = [&](auto change) {
      ClientOptions options;
      change(options);
      return [&node, options] { node.client(options); };
    };
    EXPECT_TRUE(refuses(with([](auto& o) { o.window = 0; }), kBad, {"window", "0", "4096"}));
    EXPECT_TRUE(refuses(with([](auto& o) { o.client = 1024; }), kBad, {"client", "1024"}));
    EXPECT_TRUE(refuses(with([](auto& o) { o.chunk_bytes = 64; }), kBad, {"chunk_bytes", "64"}));
    EXPECT_TRUE(refuses(with([](auto& o) { o.chunk_bytes = 65'000; }), kBad, {"65000"}));
    EXPECT_TRUE(refuses(with([](auto& o) { o.queue_entries = 1; }), kBad, {"1"}));
    EXPECT_TRUE(refuses(with([](auto& o) { o.queue_entries = 5000; }), kBad, {"5000", "4096"}));
    TableAddress bad = node.table;
    bad.groups = 3;
    EXPECT_TRUE(refuses(
        [&] {
          ClientNode{node.env, node.ends, bad, node.kill, 0}.client();
        },
        kBad, {"3"}));
    Ends more(node.env);
    std::vector<fabric::QueuePair*> pairs(2, node.ends.pairs[0]);
    EXPECT_TRUE(refuses(
        [&] {
          Client(node.env, node.env.device(), *node.ends.pd, *node.ends.completions, pairs,
                 node.table);
        },
        kBad, {"2", "1"}));
  });
}

// The client goes on after the error, and so does what is in the table.
TEST_P(RaceErrors, AFullTableSaysSo) {
  run(
      {1, 1, small_table(1)},
      [](ClientNode& node) {
        const auto client = node.client();
        std::uint64_t inserted = 0;
        const auto fill = [&] {
          for (; inserted < 200; ++inserted)
            client->insert(bytes_of(key_of(inserted)), bytes_of("x"));
        };
        EXPECT_TRUE(refuses(fill, ErrorCode::kExhausted, {"max_depth", "1", "insertion"}));
        EXPECT_GT(inserted, 50U);
        Bytes value;
        for (std::uint64_t i = 0; i < inserted; ++i)
          EXPECT_EQ(client->lookup(bytes_of(key_of(i)), value), Outcome::kOk);
        EXPECT_EQ(client->lookup(bytes_of(key_of(inserted)), value), Outcome::kMissing);
        for (std::uint64_t i = 0; i < inserted; ++i)
          EXPECT_EQ(client->remove(bytes_of(key_of(i))), Outcome::kOk);
        EXPECT_EQ(client->insert(bytes_of(key_of(inserted)), bytes_of("x")), Outcome::kOk);
      },
      [](const TableAddress& table, const Regions& regions) {
        const Audit found = audit(table, regions);
        expect_whole(found);
        EXPECT_EQ(found.values.size(), 1U);
      });
}

TEST_P(RaceErrors, UsedUpMemorySaysSo) {
  StorageOptions storage = small_table();
  storage.bytes = 32'768;
  run({1, 1, storage}, [](ClientNode& node) {
    ClientOptions options;
    options.chunk_bytes = 4096;
    const auto client = node.client(options);
    std::uint64_t inserted = 0;
    const std::string text(250, 'v');
    const auto fill = [&] {
      for (; inserted < 400; ++inserted) client->insert(bytes_of(key_of(inserted)), bytes_of(text));
    };
    EXPECT_TRUE(refuses(fill, ErrorCode::kExhausted, {"32768", "StorageOptions::bytes"}));
    EXPECT_GT(inserted, 30U);
    Bytes value;
    // A block that is freed is used again.
    for (std::uint64_t i = 0; i < inserted; ++i) {
      EXPECT_EQ(client->lookup(bytes_of(key_of(i)), value), Outcome::kOk);
      if (i >= 20) {
        EXPECT_EQ(client->remove(bytes_of(key_of(i))), Outcome::kOk);
      }
    }
    EXPECT_EQ(client->insert(bytes_of(key_of(1000)), bytes_of(text)), Outcome::kOk);
  });
}

// There is memory for blocks, and none for another subtable: the table stays as it is, unlocked.
TEST_P(RaceErrors, ASplitWithoutMemorySaysSo) {
  StorageOptions storage = small_table();
  storage.groups = 4;
  storage.bytes = 12'288;
  run(
      {1, 1, storage},
      [](ClientNode& node) {
        ClientOptions options;
        options.chunk_bytes = 6144;
        const auto client = node.client(options);
        std::uint64_t inserted = 0;
        const auto fill = [&] {
          for (; inserted < 400; ++inserted) client->insert(bytes_of(key_of(inserted)), {});
        };
        EXPECT_TRUE(refuses(fill, ErrorCode::kExhausted, {"12288", "StorageOptions::bytes"}));
        EXPECT_GT(inserted, 40U);
        Bytes value;
        for (std::uint64_t i = 0; i < inserted; ++i) {
          EXPECT_EQ(client->lookup(bytes_of(key_of(i)), value), Outcome::kOk);
          EXPECT_EQ(client->remove(bytes_of(key_of(i))), Outcome::kOk);
        }
      },
      [](const TableAddress& table, const Regions& regions) {
        const Audit found = audit(table, regions);
        expect_whole(found);
        EXPECT_EQ(found.locked, 0U);
      });
}

TEST_P(RaceErrors, AStorageNodeThatIsGoneIsNamed) {
  Shape shape{2, 1, small_table()};
  shape.storage.first_depth = 1;
  shape.victim = 1;
  run(shape, [](ClientNode& node) {
    ClientOptions options;
    options.timeout = 5 * kSecond;
    const auto client = node.client(options);
    for (std::uint64_t i = 0; i < 20; ++i)
      EXPECT_EQ(client->insert(bytes_of(key_of(i)), bytes_of("x")), Outcome::kOk);
    node.kill(1);
    int lost = 0;
    for (std::uint64_t i = 0; i < 20; ++i) {
      Bytes value;
      const bool is_there = KeyHash::of(bytes_of(key_of(i))).index(1) == 0;
      if (is_there) {
        EXPECT_EQ(client->lookup(bytes_of(key_of(i)), value), Outcome::kOk);
        continue;
      }
      ++lost;
      const auto look_up = [&] { client->lookup(bytes_of(key_of(i)), value); };
      EXPECT_TRUE(refuses(look_up, ErrorCode::kUnavailable, {"1", "lookup"}));
      EXPECT_EQ(blamed_by(look_up), (std::vector<NodeId>{1}));
    }
    EXPECT_GT(lost, 3);
  });
}

INSTANTIATE_TEST_SUITE_P(All, RaceErrors, race_worlds(),
                         [](const auto& param) { return std::string(param.param); });

// One error per operation that is under way, and each says whether it may have changed the table.
TEST(RaceErrorsSim, OperationsUnderWayFailWithTheNode) {
  Shape shape{1, 1, small_table()};
  shape.victim = 0;
  run_table("sim", shape, [](ClientNode& node) {
    ClientOptions options;
    options.window = 8;
    const auto client = node.client(options);
    EXPECT_EQ(client->insert(bytes_of(key_of(0)), bytes_of("x")), Outcome::kOk);
    for (std::uint64_t i = 0; i < 8; ++i) {
      const Kind kind = i < 4 ? Kind::kLookup : Kind::kInsert;
      client->start(kind, i, bytes_of(key_of(i)), i < 4 ? ByteView() : bytes_of("y"));
    }
    client->poll();
    node.kill(0);
    std::uint32_t failed = 0;
    while (client->under_way() != 0) {
      for (const Result& result : client->wait(node.env.now() + kSecond)) {
        ++failed;
        ASSERT_EQ(result.outcome, Outcome::kFailed);
        EXPECT_EQ(result.error->code(), ErrorCode::kUnavailable);
        EXPECT_EQ(result.error->nodes(), (std::vector<NodeId>{0}));
        EXPECT_TRUE(result.error->definite());  // no slot has changed yet
      }
    }
    EXPECT_EQ(failed, 8U);
  });
}

// The network is cut for longer than a call waits. The operation goes on by itself, and its place
// in the window is free when it has ended.
TEST(RaceErrorsSim, ACallThatTimesOutLeavesTheClientUsable) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  Env& at = cluster.env(0);
  Env& env = cluster.env(1);
  Ends storage_ends(at), ends(env);
  Storage storage(at, at.device(), *storage_ends.pd, small_table());
  storage_ends.add(at).connect(ends.add(env).address());
  ends.pairs[0]->connect(storage_ends.pairs[0]->address());
  ClientOptions options;
  options.window = 1;
  options.timeout = kMillisecond;
  Client client(env, env.device(), *ends.pd, *ends.completions, ends.pairs, storage.address(),
                options);
  EXPECT_EQ(client.insert(bytes_of("key"), bytes_of("value")), Outcome::kOk);
  cluster.block(1, 0, 4 * kMillisecond);
  Bytes value;
  EXPECT_TRUE(refuses([&] { client.lookup(bytes_of("key"), value); }, ErrorCode::kTimeout,
                      {"2000", "lookup"}));
  EXPECT_TRUE(refuses([&] { client.lookup(bytes_of("key"), value); }, ErrorCode::kExhausted,
                      {"1", "window"}));
  env.sleep_until(env.now() + 10 * kMillisecond);
  EXPECT_EQ(client.lookup(bytes_of("key"), value), Outcome::kOk);
  EXPECT_EQ(text_of(value), "value");
  EXPECT_TRUE(client.poll().empty());
}

}  // namespace
}  // namespace pyrdma::krcore::race
