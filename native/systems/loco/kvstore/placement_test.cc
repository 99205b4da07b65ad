// What other nodes find while a change of the store is not placed yet, or falls into a read. Writes
// are placed late, and reads sample their words at two moments, far apart. Random searches rarely
// have it all.
#include <array>
#include <cstring>

#include "systems/loco/barrier.h"
#include "systems/loco/kvstore/small_store_test.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

using Word = std::array<std::byte, 8>;

Word word(std::uint64_t number) {
  Word bytes;
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

fabric::sim::SimOptions late_world(std::uint32_t nodes, std::uint64_t seed) {
  fabric::sim::SimOptions options = sim_options(nodes, true, seed);
  options.memory.late_placement = options.memory.torn_read = 1;
  options.memory.max_delay_ns = 40 * kMicrosecond;
  options.memory.read_gap_ns = 20 * kMicrosecond;
  return options;
}

KvOptions quick_store() {
  KvOptions options = small_store(sizeof(Word));
  options.lock = TicketLockOptions::of(Preset::kBest);
  options.tracker_pause = kMicrosecond;
  return options;
}

ManagerOptions two_callers() {
  ManagerOptions options;
  options.callers = 2;  // the last is the tracker's
  return options;
}

/// A node with a store and a barrier.
struct StoreNode {
  explicit StoreNode(Env& env) : manager(env, two_callers()) { manager.wait_for_ready(); }
  Manager manager;
  KvStore store{manager, "kv", quick_store()};
  Barrier barrier{manager, "bar"};
  Caller& me = manager.caller(0);
  Word found{};
};

void wait_for(Env& env, const bool& is_there) {
  while (!is_there) env.sleep_until(env.now() + 100);
}

// Node 0 removes a key of node 1, and node 2 hears of it first.
TEST(LocoStoreSim, ARemovalIsPlacedBeforeAnyIndexHasIt) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    bool is_missing = false;
    fabric::sim::SimCluster cluster(late_world(3, seed));
    cluster.run([&](Env& env) {
      StoreNode node(env);
      auto& [manager, store, barrier, me, found] = node;
      if (env.node() == 1) store.insert(me, 7, word(1));
      barrier.wait(me);
      if (env.node() == 0) {
        EXPECT_EQ(store.remove(me, 7), Outcome::kOk);
      } else if (env.node() == 2) {
        while (store.locate(7)) env.sleep_until(env.now() + 100);
        is_missing = true;
      } else {
        wait_for(env, is_missing);
        EXPECT_EQ(store.lookup(me, 7, found), Outcome::kMissing) << "seed " << seed;
      }
      barrier.wait(me);
      manager.leave();
    });
  }
}

// The lock and the value are at node 1, so one list of requests writes the value and releases.
TEST(LocoStoreSim, AnUpdateIsPlacedBeforeItEnds) {
  Key key = 0;
  while (hash_of(key) % 3 != 1) ++key;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    bool has_ended = false;
    fabric::sim::SimCluster cluster(late_world(3, seed));
    cluster.run([&](Env& env) {
      StoreNode node(env);
      auto& [manager, store, barrier, me, found] = node;
      if (env.node() == 1) store.insert(me, key, word(1));
      barrier.wait(me);
      if (env.node() == 0) {
        EXPECT_EQ(store.update(me, key, word(2)), Outcome::kOk);
        has_ended = true;
        env.sleep_until(env.now() + 100 * kMicrosecond);  // the next request would place it
      } else if (env.node() == 1) {
        wait_for(env, has_ended);
        EXPECT_EQ(store.lookup(me, key, found), Outcome::kOk);
        EXPECT_EQ(found, word(2)) << "seed " << seed;
      }
      barrier.wait(me);
      manager.leave();
    });
  }
}

// A read gets the state of a slot before it is filled again, and the checksum and the value after.
TEST(LocoStoreSim, AReadOverTwoFillsOfASlotFindsNoValueOfAnotherKey) {
  bool is_over = false;
  std::uint64_t read = 0;
  fabric::sim::SimOptions world = late_world(2, 1);
  world.memory.late_placement = 0;  // a change takes less time than a read
  fabric::sim::SimCluster cluster(world);
  cluster.run([&](Env& env) {
    StoreNode node(env);
    auto& [manager, store, barrier, me, found] = node;
    barrier.wait(me);
    if (env.node() == 1) {
      for (std::uint64_t round = 0; round < 1000; ++round) {
        EXPECT_EQ(store.insert(me, round % 2, word(round % 2)), Outcome::kOk);
        EXPECT_EQ(store.remove(me, round % 2), Outcome::kOk);
      }
      is_over = true;
    }
    while (!is_over) {
      if (store.lookup(me, 0, found) == Outcome::kOk) {
        ++read;
        EXPECT_EQ(found, word(0));
      } else {
        env.sleep_until(env.now() + 100);
      }
    }
    barrier.wait(me);
    manager.leave();
  });
  EXPECT_GT(read, 10U);
}

}  // namespace
}  // namespace pyrdma::loco
