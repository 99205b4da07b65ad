// What operations cost: requests and doorbells, which the paper counts as round trips.
#include "systems/krcore/race/worlds_test.h"

namespace pyrdma::krcore::race {
namespace {

struct Cost {
  std::uint64_t doorbells = 0, reads = 0;
};

TEST(RaceCostSim, OperationsTakeTheRoundTripsOfThePaper) {
  run_table("sim", {1, 1, small_table()}, [](ClientNode& node) {
    const auto client = node.client();
    Bytes value;
    const auto cost = [&](auto act) {
      const Cost before{client->doorbells(), client->reads()};
      act();
      return Cost{client->doorbells() - before.doorbells, client->reads() - before.reads};
    };
    EXPECT_EQ(client->insert(bytes_of("first"), bytes_of("x")), Outcome::kOk);  // reserves memory
    const Cost insert = cost([&] { client->insert(bytes_of("key"), bytes_of("value")); });
    EXPECT_EQ(insert.doorbells, 3U);
    EXPECT_EQ(insert.reads, 4U);
    const Cost lookup = cost([&] { client->lookup(bytes_of("key"), value); });
    EXPECT_EQ(lookup.doorbells, 2U);
    EXPECT_EQ(lookup.reads, 3U);
    const Cost missing = cost([&] { client->lookup(bytes_of("absent"), value); });
    EXPECT_EQ(missing.doorbells, 1U);
    EXPECT_EQ(missing.reads, 2U);
    const Cost update = cost([&] { client->update(bytes_of("key"), bytes_of("other")); });
    EXPECT_EQ(update.doorbells, 3U);
    EXPECT_EQ(update.reads, 3U);
    const Cost remove = cost([&] { client->remove(bytes_of("key")); });
    EXPECT_EQ(remove.doorbells, 4U);  // nobody waits for the last one
    EXPECT_EQ(remove.reads, 4U);
  });
}

// The operations of a window share doorbells.
TEST(RaceCostSim, AWindowSharesDoorbells) {
  run_table("sim_strong", {1, 1, small_table()}, [](ClientNode& node) {
    ClientOptions options;
    options.window = 16;
    const auto client = node.client(options);
    for (std::uint64_t i = 0; i < 16; ++i) client->insert(bytes_of(key_of(i)), bytes_of("x"));
    const std::uint64_t before = client->doorbells();
    for (std::uint64_t i = 0; i < 16; ++i) client->start(Kind::kLookup, i, bytes_of(key_of(i)));
    std::uint32_t ended = 0;
    while (ended < 16) ended += static_cast<std::uint32_t>(client->wait(kForever).size());
    EXPECT_LE(client->doorbells() - before, 17U);
    EXPECT_GE(client->doorbells() - before, 2U);
  });
}

// The connections of a client that is drained are those of the next one.
TEST_P(RaceWorlds, ADrainedClientLeavesItsConnections) {
  run({1, 1, small_table()}, [](ClientNode& node) {
    for (int round = 0; round < 3; ++round) {
      const auto client = node.client();
      for (std::uint64_t i = 0; i < 20; ++i) {
        EXPECT_EQ(client->insert(bytes_of(key_of(i)), bytes_of("x")), Outcome::kOk);
        EXPECT_EQ(client->remove(bytes_of(key_of(i))), Outcome::kOk);
      }
      EXPECT_TRUE(client->drain(node.env.now() + 60 * kSecond));
    }
  });
}

// Few places in the send queues, and many operations: requests wait for places.
TEST_P(RaceWorlds, ASmallSendQueueHoldsNothingUp) {
  run({2, 1, small_table()}, [](ClientNode& node) {
    ClientOptions options;
    options.window = 32;
    options.queue_entries = 4;
    options.timeout = 20 * kSecond;
    const auto client = node.client(options);
    std::uint64_t begun = 0, ended = 0;
    while (ended < 600) {
      while (begun < 600 && !client->is_full()) {
        client->start(Kind::kInsert, begun, bytes_of(key_of(begun)), bytes_of("value"));
        ++begun;
      }
      for (const Result& result : client->wait(node.env.now() + 60 * kSecond)) {
        ++ended;
        EXPECT_EQ(result.outcome, Outcome::kOk);
      }
    }
    Bytes value;
    for (std::uint64_t i = 0; i < 600; ++i)
      EXPECT_EQ(client->lookup(bytes_of(key_of(i)), value), Outcome::kOk) << i;
  });
}

}  // namespace
}  // namespace pyrdma::krcore::race
