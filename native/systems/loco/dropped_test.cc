// Acquisitions and operations of the store that are dropped before their end, or end with an error:
// they keep no lock, and no block of memory that the NIC still writes into has another user.
#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "systems/loco/barrier.h"
#include "systems/loco/kvstore/small_store_test.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

using LocoDropped = LocoWorlds;
INSTANTIATE_TEST_SUITE_P(Worlds, LocoDropped, loco_worlds(),
                         [](const auto& param) { return param.param; });

using Value = std::array<std::byte, 40>;

ManagerOptions two_callers_and(Time wait_timeout) {
  ManagerOptions options;
  options.callers = 2;  // the last is the tracker's
  options.wait_timeout = wait_timeout;
  return options;
}

/// A node with a store and a barrier.
struct StoreNode {
  StoreNode(Env& env, Time wait_timeout)
      : manager(env, two_callers_and(wait_timeout)),
        store(manager, "kv", small_store(sizeof(Value))),
        barrier(manager, "bar"),
        me(manager.caller(0)) {
    manager.wait_for_ready();
  }
  Manager manager;
  KvStore store;
  Barrier barrier;
  Caller& me;
};

TEST_P(LocoDropped, ABlockInFlightHasNoOtherUser) {
  run(2, [&](Manager& manager) {
    SharedRegion region(manager, "r", 8, fabric::kRemoteRead);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    *reinterpret_cast<std::uint64_t*>(region.local()) = 7;
    Caller& me = manager.caller(0);
    barrier.wait(me);
    const NodeId peer = 1 - manager.self();
    for (int round = 0; round < 100; ++round) {
      {
        InFlight dropped(me.block(8));
        dropped.key = region.read(me, peer, 0, dropped.block.sge(8));
        InFlight moved(std::move(dropped));
        moved = InFlight();  // in flight
      }
      const MemRef next = me.block(8);
      *next.as<std::uint64_t>() = 9;
      InFlight last(me.block(8));
      last.key = region.read(me, peer, 0, last.block.sge(8));
      EXPECT_EQ(last.key.wait(), fabric::Status::kSuccess);
      EXPECT_EQ(*next.as<std::uint64_t>(), 9U);
      EXPECT_EQ(*last.block.as<std::uint64_t>(), 7U);
    }
    barrier.wait(me);
  });
}

// Node 1 drops acquisitions while node 0 holds the lock, one of them behind the other.
TEST_P(LocoDropped, AnAcquisitionPassesItsTicketOn) {
  run(2, [&](Manager& manager) {
    TicketLocks locks(manager, "locks", 3);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    for (std::uint64_t lock = 0; lock < 3; ++lock) {
      if (manager.self() == 0) locks.acquire(me, lock);
      barrier.wait(me);
      if (manager.self() == 1) {
        AcquireOp op = locks.start_acquire(me, lock);
        AcquireOp behind = locks.start_acquire(me, lock);
        for (std::uint64_t i = 0; i < 5 * lock; ++i) {
          manager.turn();
          EXPECT_FALSE(op.poll() || behind.poll());
        }
      }
      barrier.wait(me);
      if (manager.self() == 0) locks.release(me, lock, Fence::kPair);
      for (int i = 0; i < 3; ++i) {
        locks.acquire(me, lock);
        locks.release(me, lock, Fence::kPair);
      }
      barrier.wait(me);
    }
  });
}

// Operations are dropped after each number of polls; then both nodes change the same key.
TEST_P(LocoDropped, AnOperationGivesItsLockBack) {
  run(
      2,
      [&](Manager& manager) {
        KvStore store(manager, "kv", small_store(sizeof(Value)));
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        Caller& me = manager.caller(0);
        const Key key = 5;
        for (int polls = 0; polls < 60; polls += 4) {
          if (manager.self() == 1) {
            KvOperation op(store, me);
            if (polls % 3 == 0) op.insert(key, Value{});
            if (polls % 3 == 1) op.update(key, Value{});
            if (polls % 3 == 2) op.remove(key);
            for (int i = 0; i < polls && !op.over(); ++i) {
              manager.turn();
              manager.env().sleep_until(manager.env().now() + 200);
              op.poll();
            }
          }
          barrier.wait(me);
          // The operation that was dropped has taken effect or not.
          const Outcome outcome = store.update(me, key, Value{});
          EXPECT_TRUE(outcome == Outcome::kOk || outcome == Outcome::kMissing);
          if (manager.self() == 0) {
            const Outcome inserted = store.insert(me, key, Value{});
            EXPECT_TRUE(inserted == Outcome::kOk || inserted == Outcome::kDuplicate);
          }
          barrier.wait(me);
          EXPECT_EQ(store.update(me, key, Value{}), Outcome::kOk);
          barrier.wait(me);
        }
      },
      two_callers_and(10 * kSecond));
}

// Two tickets precede the dropped one. Its node hears nothing of others meanwhile, so only its own
// look at the lock can wake it.
TEST(LocoDroppedSim, ALateTicketIsPassedOnWithoutOtherTraffic) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    Manager manager(env, two_callers_and(kSecond));
    TicketLock lock(manager, "lock");
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    barrier.wait(me);
    const Time begin = env.now();
    const auto at = [&](Time ms) { env.sleep_until(begin + ms * kMillisecond); };
    at(env.node());  // node 0 takes the lock, then node 1 its ticket, then node 2
    if (env.node() == 2) {
      {
        AcquireOp dropped = lock.start_acquire(me, 0);
        at(3);
        manager.turn();
        EXPECT_FALSE(dropped.poll());
      }
      me.wait_until([&] { return !me.has_unfinished(); }, "end of the dropped acquisition");
      EXPECT_LT(env.now(), begin + 20 * kMillisecond);
    } else {
      lock.acquire(me);
      if (env.node() == 0) at(10);
      lock.release(me, Fence::kPair);
    }
    at(500);
    manager.leave();
  });
}

// A thread waits behind the dropped acquisition of another thread of its node. Only the end of the
// dropped work can wake it: the hand-over sends no message.
TEST(LocoDroppedSim, TheEndOfDroppedWorkWakesTheOtherThread) {
  for (const std::uint32_t drops : {0U, 1U}) {
    fabric::sim::SimCluster cluster(sim_options(2));
    cluster.run([&](Env& env) {
      Manager manager(env, two_callers_and(kSecond));
      TicketLock lock(manager, "lock");
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      if (env.node() == 0) lock.acquire(me);
      barrier.wait(me);
      const Time begin = env.now();
      if (env.node() == 0) {
        env.sleep_until(begin + kMillisecond);
        lock.release(me, Fence::kPair);
        env.sleep_until(begin + 3 * kSecond);
        return;
      }
      bool held = false;
      const auto body = [&](std::uint32_t i) {
        Caller& mine = manager.caller(i);
        if (i == drops) {
          static_cast<void>(lock.start_acquire(mine, 0));
          mine.wait_until([&] { return held; }, "the other thread");
          return;
        }
        env.sleep_until(begin + 100 * kMicrosecond);
        lock.acquire(mine);
        held = true;
        EXPECT_LT(env.now(), begin + 10 * kMillisecond);
        lock.release(mine, Fence::kPair);
      };
      const auto second = env.spawn("second", [&] { body(1); });
      body(0);
    });
  }
}

// The slot is at the dead node, the lock of the key is not.
TEST(LocoDroppedSim, AChangeOfAValueAtADeadNodeGivesItsLockBack) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    StoreNode node(env, 50 * kMillisecond);
    auto& [manager, store, barrier, me] = node;
    Key key = 0;
    while (hash_of(key) % 3 == 2) ++key;
    if (env.node() == 2) {
      EXPECT_EQ(store.insert(me, key, Value{}), Outcome::kOk);
    }
    barrier.wait(me);
    if (env.node() == 2) {
      cluster.kill(2);
      env.sleep_until(kForever);
    }
    for (int i = 0; i < 3; ++i) {
      const auto update = [&, &store = store, &me = me] { store.update(me, key, Value{}); };
      EXPECT_TRUE(refuses(update, ErrorCode::kUnavailable, {"2"}));
      EXPECT_EQ(blamed_by(update), std::vector<NodeId>{2});
    }
    env.sleep_until(kSecond);  // the others need this node
  });
}

// Node 2 stops for longer than the patience of node 0. Its insertion ends later, and its lock is
// free.
TEST(LocoDroppedSim, AnInsertionThatTimesOutGoesOn) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    StoreNode node(env, 20 * kMillisecond);
    auto& [manager, store, barrier, me] = node;
    barrier.wait(me);
    if (env.node() == 0) {
      cluster.pause(2, 30 * kMillisecond);
      const auto insert = [&store = store, &me = me] { store.insert(me, 7, Value{}); };
      EXPECT_EQ(blamed_by(insert), std::vector<NodeId>{2});
      env.sleep_until(env.now() + 15 * kMillisecond);
      EXPECT_EQ(store.insert(me, 7, Value{}), Outcome::kDuplicate);
      Value found;
      EXPECT_EQ(store.lookup(me, 7, found), Outcome::kOk);
    } else {
      env.sleep_until(env.now() + 60 * kMillisecond);
      EXPECT_EQ(store.update(me, 7, Value{}), Outcome::kOk);
    }
    env.sleep_until(200 * kMillisecond);
    manager.leave();
  });
}

// Node 0 keeps the lock of the key for longer than the patience of node 1.
TEST(LocoDroppedSim, AChangeThatGetsNoLockInTimeIsOver) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    StoreNode node(env, env.node() == 1 ? 10 * kMillisecond : 100 * kMillisecond);
    auto& [manager, store, barrier, me] = node;
    barrier.wait(me);
    if (env.node() == 0) {
      cluster.pause(2, 35 * kMillisecond);
      EXPECT_EQ(store.insert(me, 7, Value{}), Outcome::kOk);
    } else if (env.node() == 1) {
      env.sleep_until(env.now() + kMillisecond);
      KvOperation update(store, me);
      update.update(7, Value{});
      const auto wait = [&, &me = me] { me.wait_until([&] { return update.poll(); }, "the end"); };
      const auto poll = [&, &manager = manager] {
        while (env.now() < 30 * kMillisecond && !update.poll()) manager.turn();
      };
      EXPECT_TRUE(refuses(wait, ErrorCode::kTimeout, {"no the end within 10 ms"}));
      EXPECT_TRUE(refuses(poll, ErrorCode::kTimeout, {"lock"}));
      EXPECT_TRUE(update.over());
      env.sleep_until(env.now() + 40 * kMillisecond);
      update.update(7, Value{});
      wait();
      EXPECT_EQ(update.outcome(), Outcome::kOk);
    }
    env.sleep_until(200 * kMillisecond);
    manager.leave();
  });
}

TEST(LocoDroppedSim, AChangeWhoseLockIsAtADeadNodeIsOver) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    StoreNode node(env, 50 * kMillisecond);
    auto& [manager, store, barrier, me] = node;
    barrier.wait(me);
    if (env.node() == 2) {
      cluster.kill(2);
      env.sleep_until(kForever);
    }
    Key key = 0;
    while (hash_of(key) % 3 != 2) ++key;
    KvOperation update(store, me);
    update.update(key, Value{});
    const auto wait = [&, &me = me] { me.wait_until([&] { return update.poll(); }, "the end"); };
    EXPECT_EQ(blamed_by(wait), std::vector<NodeId>{2});
    EXPECT_TRUE(update.over());
    env.sleep_until(kSecond);  // the others need this node
  });
}

// The locks of node 1 are destroyed while its acquisition waits, as when its error unwinds. The
// ticket is passed on all the same, at every step of the acquisition, with the mark of doubt.
TEST(LocoDroppedSim, ATicketIsPassedOnAlthoughTheLocksAreDestroyed) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    for (const bool tries : {false, true}) {
      for (Time wait = 0; wait < 8 * kMicrosecond; wait += 250) {
        fabric::sim::SimCluster cluster(sim_options(3));
        cluster.run([&](Env& env) {
          Manager manager(env, two_callers_and(kSecond));
          Barrier barrier(manager, "bar");
          auto lock = std::make_unique<TicketLocks>(manager, "l", 1, TicketLockOptions::of(preset));
          manager.wait_for_ready();
          Caller& me = manager.caller(0);
          if (env.node() == 0 && !tries) lock->acquire(me, 0);
          barrier.wait(me);
          const Time begin = env.now();
          if (env.node() == 1) {
            AcquireOp dropped = lock->start_acquire(me, 0);
            AcquireOp behind = lock->start_acquire(me, 0);
            while (env.now() < begin + wait) {
              manager.turn();
              dropped.poll();
              behind.poll();
              env.sleep_until(env.now() + 50);
            }
            if (dropped.held()) lock->release(me, 0, Fence::kNone);
            { const AcquireOp gone[] = {std::move(dropped), std::move(behind)}; }
            lock = nullptr;
            me.wait_until([&] { return !me.has_unfinished(); }, "end of the dropped work");
          } else {
            env.sleep_until(begin + 20 * kMicrosecond);
            if (env.node() == 0 && !tries) lock->start_release(me, 0, true);
            lock->acquire(me, 0);
            EXPECT_EQ(lock->in_doubt(0), !tries) << wait;
            lock->release(me, 0, Fence::kNone);
          }
          barrier.wait(me);
          EXPECT_LT(env.now() - begin, kMillisecond);
          manager.leave();
        });
      }
    }
  }
}

TEST(LocoDroppedSim, AnAcquireThatTimesOutAndUnwindsPassesItsTicketOn) {
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    Manager manager(env, two_callers_and(20 * kMillisecond));
    Barrier barrier(manager, "bar");
    Caller& me = manager.caller(0);
    const auto use = [&] {
      TicketLock lock(manager, "lock");
      manager.wait_for_ready();
      runtime::node_barrier(env, "begun", kSecond);
      const Time begin = env.now();
      if (env.node() == 1) env.sleep_until(begin + kMillisecond);
      if (env.node() == 2) env.sleep_until(begin + 40 * kMillisecond);
      lock.acquire(me);
      if (env.node() == 0) env.sleep_until(begin + 30 * kMillisecond);
      lock.release(me, Fence::kNone);
    };
    if (env.node() == 1) {
      EXPECT_TRUE(refuses(use, ErrorCode::kTimeout, {"lock"}));
    } else {
      use();
    }
    const Time end = env.now() + 15 * kMillisecond;
    me.wait_until([&] { return env.now() >= end; }, "the end");
    runtime::node_barrier(env, "end", kSecond);
  });
}

// Nobody has got an error of the acquisition when its node leaves.
TEST(LocoDroppedSim, WorkThatCannotEndIsReported) {
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.run([&](Env& env) {
    Manager manager(env, two_callers_and(20 * kMillisecond));
    TicketLock lock(manager, "lock");
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    if (env.node() == 0) lock.acquire(me);
    barrier.wait(me);
    if (env.node() == 1) {
      static_cast<void>(lock.start_acquire(me, 0));
      EXPECT_TRUE(refuses([&] { me.runtime().drain(); }, ErrorCode::kTimeout, {"1", "20"}));
      me.runtime().drain();
    }
    env.sleep_until(kSecond);  // node 0 answers until the end
  });
}

// A thread of a node whose lock's host is dead does not wait behind another thread of the node.
TEST(LocoDroppedSim, ADeadHostIsNamedToEveryThread) {
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.run([&](Env& env) {
    Manager manager(env, two_callers_and(kSecond));
    TicketLocks locks(manager, "locks", 2);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    barrier.wait(manager.caller(0));
    if (env.node() == 1) {
      cluster.kill(1);
      env.sleep_until(kForever);
    }
    const Time begin = env.now();
    const auto acquire = [&](std::uint32_t i) {
      EXPECT_TRUE(refuses([&] { locks.acquire(manager.caller(i), 1); }, ErrorCode::kUnavailable));
    };
    {
      const auto second = env.spawn("second", [&] { acquire(1); });
      acquire(0);
    }
    EXPECT_LT(env.now() - begin, kSecond / 2);
  });
}

}  // namespace
}  // namespace pyrdma::loco
