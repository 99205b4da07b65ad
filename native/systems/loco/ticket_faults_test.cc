// Ticket locks while nodes die, or lose each other.
#include <memory>
#include <vector>

#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "systems/loco/barrier.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/ticket_lock.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

// A release in doubt marks the lock for all later holders, on this node and on others.
TEST_P(LocoWorlds, EveryLaterHolderHearsOfAReleaseInDoubt) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    run(2, [&](Manager& manager) {
      TicketLocks locks(manager, "locks", 2, TicketLockOptions::of(preset));
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      const auto hold = [&](std::uint64_t lock, bool wanted, bool in_doubt) {
        locks.acquire(me, lock);
        EXPECT_EQ(locks.in_doubt(lock), wanted);
        AckKey key = locks.start_release(me, lock, in_doubt);
        EXPECT_EQ(key.wait(), fabric::Status::kSuccess);
      };
      hold(0, false, false);
      barrier.wait(me);
      if (manager.self() == 1) {
        // The next thread of the node does not get the lock handed over, but hears of the doubt.
        locks.acquire(me, 0);
        AcquireOp next = locks.start_acquire(me, 0);
        locks.start_release(me, 0, true);
        me.wait_until([&] { return next.poll(); }, "the lock");
        EXPECT_TRUE(locks.in_doubt(0) && next.ticket().has_value());
        locks.release(me, 0, Fence::kNone);
      }
      barrier.wait(me);
      for (int i = 0; i < 3; ++i) hold(0, true, manager.self() == 0);
      hold(1, false, false);
      barrier.wait(me);
    });
  }
}

// The host's answers to node 1 are lost, and with them its ticket. The error of others names it.
TEST(LocoFaults, ANodeThatHasLostItsTicketIsNamed) {
  fabric::sim::SimCluster cluster(sim_options(3, true));
  ManagerOptions options;
  options.wait_timeout = 50 * kMillisecond;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    TicketLocks locks(manager, "locks", 3);
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    runtime::node_barrier(env, "begun", kSecond);
    const Time begin = env.now();
    if (env.node() == 0) cluster.block(0, 1, 30 * kMillisecond);
    env.sleep_until(begin + kMillisecond);
    const auto acquire = [&] { locks.acquire(me, 0); };
    if (env.node() == 1) {
      EXPECT_TRUE(refuses(acquire, ErrorCode::kUnavailable, {"locks", "0"}));
    }
    env.sleep_until(begin + 40 * kMillisecond);
    if (env.node() != 1) {
      if (env.node() == 2) {
        EXPECT_TRUE(refuses(acquire, ErrorCode::kTimeout, {"locks", "0", "1", "lost"}));
      }
      EXPECT_EQ(blamed_by(acquire), std::vector<NodeId>{1});
      locks.acquire(me, 2);  // another host's lock goes on
      locks.release(me, 2, Fence::kNone);
    }
    env.sleep_until(begin + kSecond);
  });
}

// Node 1 waits in vain, and its error destroys its locks. It then does nothing but turns.
TEST(LocoFaults, TurnsPassOnTheTicketOfAnAcquisitionThatEndedInAnError) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    fabric::sim::SimCluster cluster(sim_options(3, true));
    ManagerOptions options;
    options.wait_timeout = 20 * kMillisecond;
    cluster.run([&](Env& env) {
      Manager manager(env, options);
      Caller& me = manager.caller(0);
      auto locks =
          std::make_unique<TicketLocks>(manager, "locks", 3, TicketLockOptions::of(preset));
      manager.wait_for_ready();
      runtime::node_barrier(env, "begun", kSecond);
      const Time begin = env.now();
      const auto turn_until = [&](Time ms) {
        while (env.now() < begin + ms * kMillisecond) {
          manager.turn();
          env.sleep_until(env.now() + 10 * kMicrosecond);
        }
      };
      if (env.node() == 0) locks->acquire(me, 0);
      turn_until(env.node());
      if (env.node() == 1) {
        EXPECT_EQ(blamed_by([&] { locks->acquire(me, 0); }), std::vector<NodeId>{0});
        locks = nullptr;
      }
      turn_until(25 + env.node());
      if (env.node() == 0) locks->release(me, 0, Fence::kNone);
      if (env.node() == 2) {
        EXPECT_EQ(locks->acquire(me, 0), 2U);
        EXPECT_LT(env.now(), begin + 28 * kMillisecond);
        locks->release(me, 0, Fence::kNone);
      }
      turn_until(60);
    });
  }
}

// The thread that was to take the lock has ended. Others name its node, at each stage of the
// acquisition, until another thread goes on with the caller.
TEST(LocoFaults, ANodeThatKeepsATicketIsNamed) {
  for (const bool is_answered : {false, true}) {
    fabric::sim::SimCluster cluster(sim_options(2, true));
    ManagerOptions options;
    options.callers = 2;
    options.wait_timeout = 20 * kMillisecond;
    cluster.run([&](Env& env) {
      Manager manager(env, options);
      TicketLocks locks(manager, "locks", 2);
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      runtime::node_barrier(env, "begun", kSecond);
      const Time begin = env.now();
      const auto turn_until = [&](Time ms) {
        while (env.now() < begin + ms * kMillisecond) {
          manager.turn();
          env.sleep_until(env.now() + 10 * kMicrosecond);
        }
      };
      if (env.node() == 0) locks.acquire(me, 0);
      turn_until(1);
      if (env.node() == 1) {
        env.spawn("second",
                  [&] {
                    AcquireOp op = locks.start_acquire(manager.caller(1), 0);
                    if (is_answered) turn_until(2);
                    EXPECT_FALSE(op.poll());
                  })
            ->join();
      }
      turn_until(5);
      const auto acquire = [&] { locks.acquire(me, 0); };
      if (env.node() == 0) {
        locks.release(me, 0, Fence::kNone);
        EXPECT_TRUE(refuses(acquire, ErrorCode::kTimeout, {"locks", "node 1", "takes"}));
        EXPECT_EQ(blamed_by(acquire), std::vector<NodeId>{1});
      }
      turn_until(50);
      while (env.node() == 1 && manager.caller(1).has_unfinished()) {
        manager.turn(manager.caller(1));
        env.sleep_until(env.now() + 10 * kMicrosecond);
      }
      turn_until(60);
      acquire();
      locks.release(me, 0, Fence::kNone);
      turn_until(90);
    });
  }
}

// The first thread writes under the lock to its host, which has died, and hands the lock over.
TEST(LocoFaults, TheNextThreadHearsOfWritesThatTheLastHolderLost) {
  fabric::sim::SimCluster cluster(sim_options(2, true));
  ManagerOptions options;
  options.callers = 2;
  options.wait_timeout = kSecond;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    TicketLocks locks(manager, "locks", 2);
    SharedRegion data(manager, "data", 8, kReadWrite);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller &first = manager.caller(0), &next = manager.caller(1);
    if (env.node() == 0) locks.acquire(first, 1);
    barrier.wait(first);
    if (env.node() == 1) {
      cluster.kill(1);
      env.sleep_until(kForever);
    }
    const auto acquire = [&] { locks.acquire(next, 1); };
    {
      const auto second = env.spawn("second", [&] {
        EXPECT_TRUE(refuses(acquire, ErrorCode::kUnavailable, {"locks", "1", "last holder"}));
        EXPECT_TRUE(refuses(acquire, ErrorCode::kUnavailable, {"locks", "1", "does not answer"}));
      });
      env.sleep_until(env.now() + kMillisecond);
      Requests before;
      const MemRef word = first.block(8);
      const fabric::Sge sge = word.sge(8);
      before.add(fabric::Opcode::kWrite, data.at(1), 0, sge);
      EXPECT_NE(locks.release(first, 1, Fence::kBefore, before).wait(), fabric::Status::kSuccess);
    }
  });
}

TEST(LocoFaults, ADeadHolderIsNamed) {
  fabric::sim::SimCluster cluster(sim_options(3, true));
  std::vector<testing::AssertionResult> refused(2, testing::AssertionFailure() << "not reached");
  ManagerOptions options;
  options.wait_timeout = 50 * kMillisecond;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    TicketLocks locks(manager, "locks", 3);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    if (env.node() == 2) locks.acquire(me, 0);
    barrier.wait(me);
    if (env.node() == 2) {
      cluster.kill(2);
      env.sleep_until(kForever);
    }
    refused[env.node()] =
        env.node() == 0
            ? refuses([&] { locks.acquire(me, 0); }, ErrorCode::kTimeout, {"locks", "0", "2"})
            : refuses([&] { locks.acquire(me, 2); }, ErrorCode::kUnavailable, {"locks", "2"});
    EXPECT_EQ(blamed_by([&] { locks.acquire(me, env.node() == 0 ? 0 : 2); }),
              std::vector<NodeId>{2});
    env.sleep_until(env.now() + kSecond);  // the others find it alive
  });
  for (const testing::AssertionResult& each : refused) EXPECT_TRUE(each);
}

}  // namespace
}  // namespace pyrdma::loco
