// The model of Sherman: all nodes see updates of all nodes.
#include "systems/loco/baselines/sherman.h"

#include <array>

#include "base/error.h"
#include "fabric/sim/cluster.h"
#include "runtime/node_barrier.h"
#include "systems/loco/barrier.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

void read_and_update(const std::string& world, const ShermanOptions& tree_options) {
  ManagerOptions options;
  options.block_bytes = Sherman::kLeafBytes;
  run_nodes(world, 3, options, [&](Manager& manager) {
    Sherman tree(manager, "tree", tree_options);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    tree.load();
    Caller& me = manager.caller(0);
    barrier.wait(me);
    ShermanOperation operation(tree, me);
    const auto run = [&] {
      me.wait_until([&] { return operation.poll(); }, "an operation");
      return operation.outcome();
    };
    for (Key key = 0; key < 1000; key += 7) {
      operation.lookup(key);
      EXPECT_EQ(run(), Outcome::kOk);
      EXPECT_EQ(operation.value(), key);
    }
    barrier.wait(me);
    for (Key key = manager.self(); key < 100; key += 3) {
      operation.update(key, key + 5000);
      EXPECT_EQ(run(), Outcome::kOk);
    }
    barrier.wait(me);
    for (Key key = 0; key < 200; ++key) {
      operation.lookup(key);
      EXPECT_EQ(run(), Outcome::kOk);
      EXPECT_EQ(operation.value(), key < 100 ? key + 5000 : key);
    }
    barrier.wait(me);
  });
}

TEST_P(LocoWorlds, ATreeOfLeavesIsReadAndUpdated) {
  const ShermanOptions usual{.keys = 1000, .locks = 2};
  read_and_update(GetParam(), usual);
  ShermanOptions without = usual;
  without.local_queues = false;
  read_and_update(GetParam(), without);
  without = usual;
  without.whole_leaf = false;
  read_and_update(GetParam(), without);
  without.combined_unlock = false;
  without.grant = Grant::kTicket;
  read_and_update(GetParam(), without);
  run(1, [](Manager& manager) { EXPECT_THROW(Sherman(manager, "tree", {}), Error); });
}

// A post that finds no room throws; what it should have posted is posted later.
TEST(LocoSherman, APostThatFailsLeavesAnUpdateWhereItWas) {
  constexpr std::uint32_t kRoom = 64;
  constexpr NodeId kDead = 2;
  constexpr Key kKey = 50;  // at node 1
  ManagerOptions options;
  options.callers = 2;
  options.block_bytes = Sherman::kLeafBytes;
  options.max_in_flight = kRoom;
  options.wait_timeout = 2 * kMillisecond;
  for (const bool combined : {true, false}) {
    fabric::sim::SimCluster cluster(sim_options(3));
    cluster.run([&](Env& env) {
      Manager manager(env, options);
      Sherman tree(manager, "tree", {.keys = 1000, .locks = 2, .combined_unlock = combined});
      SharedRegion words(manager, "words", 8, kReadWrite);
      manager.wait_for_ready();
      tree.load();
      runtime::node_barrier(env, "made", kSecond);
      if (env.node() == kDead) {
        cluster.kill(kDead);
        env.sleep_until(kForever);
      }
      if (env.node() == 0) {
        Caller& me = manager.caller(0);
        const auto settle = [&](Time time) {
          env.sleep_until(env.now() + time);
          manager.turn();
        };
        ShermanOperation operation(tree, me);
        operation.update(kKey, 7);
        settle(50 * kMicrosecond);
        EXPECT_FALSE(operation.poll());  // has the lock, and reads
        settle(50 * kMicrosecond);
        const MemRef word = me.block(8);
        for (std::uint32_t i = 0; i < kRoom; ++i) words.write(me, kDead, 0, word.sge(8));
        EXPECT_TRUE(refuses([&] { operation.poll(); }, ErrorCode::kTimeout, {"room", "2"}));
        settle(100 * kMillisecond);
        me.wait_until([&] { return operation.poll(); }, "the update");
        ShermanOperation next(tree, manager.caller(1));
        next.lookup(kKey);
        manager.caller(1).wait_until([&] { return next.poll(); }, "a lookup");
        EXPECT_EQ(next.value(), 7U);
        next.update(kKey, 8);
        manager.caller(1).wait_until([&] { return next.poll(); }, "the next update");
        EXPECT_EQ(next.outcome(), Outcome::kOk);
      }
      constexpr std::array<NodeId, 2> kAlive{0, 1};
      runtime::node_barrier(env, "end", kSecond, kAlive);
    });
  }
}

// Updates are dropped after each number of polls; another node changes the same leaf then.
TEST(LocoSherman, AnUpdateThatIsDroppedGivesItsLockBack) {
  ManagerOptions options;
  options.block_bytes = Sherman::kLeafBytes;
  options.wait_timeout = 50 * kMillisecond;
  for (const bool combined : {true, false}) {
    fabric::sim::SimCluster cluster(sim_options(2));
    cluster.run([&](Env& env) {
      Manager manager(env, options);
      Sherman tree(manager, "tree", {.keys = 100, .locks = 1, .combined_unlock = combined});
      manager.wait_for_ready();
      tree.load();
      Caller& me = manager.caller(0);
      const auto update = [&](std::uint64_t value) {
        ShermanOperation operation(tree, me);
        operation.update(50, value);
        me.wait_until([&] { return operation.poll(); }, "an update");
      };
      for (int polls = 0; polls < 20; ++polls) {
        runtime::node_barrier(env, "round" + std::to_string(polls), kSecond);
        if (env.node() == 0) {
          ShermanOperation dropped(tree, me);
          dropped.update(50, 1000);
          for (int i = 0; i < polls && !dropped.over(); ++i) {
            env.sleep_until(env.now() + 400);
            manager.turn();
            dropped.poll();
          }
        }
        update(env.node());
      }
      manager.leave();
    });
  }
}

// The threads of a node queue for a lock, also behind one whose operation fails.
TEST(LocoSherman, AnUpdateThatFailsLetsTheNextOneOfItsNodeGoOn) {
  ManagerOptions options;
  options.callers = 2;
  options.block_bytes = Sherman::kLeafBytes;
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    Sherman tree(manager, "tree", {.keys = 100, .locks = 1});
    manager.wait_for_ready();
    runtime::node_barrier(env, "made", kSecond);
    if (env.node() == 1) {
      env.sleep_until(env.now() + 20 * kMicrosecond);
      cluster.kill(1);
      env.sleep_until(kForever);
    }
    ShermanOperation first(tree, manager.caller(0));
    first.update(50, 7);
    env.sleep_until(env.now() + 100 * kMicrosecond);  // the node dies meanwhile
    manager.turn();
    EXPECT_FALSE(first.poll());  // has the lock
    ShermanOperation second(tree, manager.caller(1));
    second.update(50, 8);
    for (ShermanOperation* each : {&first, &second}) {
      EXPECT_EQ(blamed_by([&] {
                  manager.caller(0).wait_until([&] { return each->poll(); }, "an update");
                }),
                std::vector<NodeId>{1});
    }
  });
}

}  // namespace
}  // namespace pyrdma::loco
