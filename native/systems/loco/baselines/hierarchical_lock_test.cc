// Sherman's hierarchical locks: exclusion, the order of a node's queue, and the bound of
// hand-overs.
#include "systems/loco/baselines/hierarchical_lock.h"

#include <algorithm>
#include <mutex>

#include "base/error_test.h"
#include "systems/loco/barrier.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

/// The holders of the lock, in order.
struct Holding {
  NodeId node;
  std::uint32_t place;
  bool handed_over;
};

constexpr std::uint64_t kShermansLock = 4, kTurns = 30;
constexpr std::uint32_t kThreads = 3;

// Increments a word under the lock; its write is placed before the release ends.
void count_in_turns(HierarchicalLocks& locks, SharedRegion& region, Caller& me, std::mutex& mutex,
                    std::vector<Holding>& holdings) {
  const NodeId host = locks.host_of(kShermansLock);
  MemRef word = me.block(8);
  for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
    HierarchicalOp op = locks.start_acquire(me, kShermansLock);
    me.wait_until([&] { return op.poll(); }, "a lock");
    {
      const std::lock_guard guard(mutex);
      holdings.push_back({me.runtime().self(), op.place(), op.handed_over()});
    }
    EXPECT_EQ(region.read(me, host, 0, word.sge(8)).wait(), fabric::Status::kSuccess);
    ++*word.as<std::uint64_t>();
    const fabric::Sge from = word.sge(8);
    Requests before;
    before.add(fabric::Opcode::kWrite, region.at(host), 0, from);
    before.emplace_back().opcode = fabric::Opcode::kRead;
    EXPECT_EQ(locks.start_release(me, kShermansLock, before.span()).wait(),
              fabric::Status::kSuccess);
    locks.end_release(kShermansLock);
  }
}

std::vector<Holding> holdings_under(const std::string& world, const HierarchicalOptions& options) {
  std::mutex mutex;
  std::vector<Holding> holdings;
  ManagerOptions manager_options;
  manager_options.callers = kThreads;
  run_nodes(world, 3, manager_options, [&](Manager& manager) {
    HierarchicalLocks locks(manager, "locks", 5, options);
    SharedRegion region(manager, "data", 8, kReadWrite);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    const auto body = [&](std::uint32_t i) {
      count_in_turns(locks, region, manager.caller(i), mutex, holdings);
    };
    {
      std::vector<std::unique_ptr<Thread>> others;
      for (std::uint32_t i = 1; i < kThreads; ++i) {
        others.push_back(manager.env().spawn("thread", [&body, i] { body(i); }));
      }
      body(0);
    }
    Caller& me = manager.caller(0);
    barrier.wait(me);
    MemRef word = me.block(8);
    EXPECT_EQ(region.read(me, locks.host_of(kShermansLock), 0, word.sge(8)).wait(),
              fabric::Status::kSuccess);
    EXPECT_EQ(*word.as<std::uint64_t>(), 3 * kThreads * kTurns);
    barrier.wait(me);
  });
  return holdings;
}

TEST_P(LocoWorlds, HierarchicalLocksExcludeInTheOrderOfEachNodesQueue) {
  const HierarchicalOptions options;
  std::uint32_t next[3] = {}, in_a_row = 0, most = 0;
  NodeId last = 0;
  for (const Holding& holding : holdings_under(GetParam(), options)) {
    EXPECT_EQ(holding.place, next[holding.node]++);
    EXPECT_TRUE(!holding.handed_over || holding.node == last);
    in_a_row = holding.handed_over ? in_a_row + 1 : 0;
    most = std::max(most, in_a_row);
    last = holding.node;
  }
  EXPECT_LE(most, options.max_handovers);
}

TEST_P(LocoWorlds, HierarchicalLocksExcludeWithoutQueuesOrHandovers) {
  const auto handed_over = [&](const HierarchicalOptions& options) {
    const std::vector<Holding> all = holdings_under(GetParam(), options);
    return std::count_if(all.begin(), all.end(), [](const Holding& h) { return h.handed_over; });
  };
  HierarchicalOptions options;
  options.max_handovers = 0;
  EXPECT_EQ(handed_over(options), 0);
  options.local_queues = false;
  EXPECT_EQ(handed_over(options), 0);
  options.grant = Grant::kTicket;
  EXPECT_EQ(handed_over(options), 0);
}

// All threads of a node always wait, so each turn of the node has the length of the bound.
TEST(HierarchicalLocksSim, HandOversAreAsManyInARowAsTheBoundAllows) {
  for (const std::uint32_t bound : {1U, 4U}) {
    HierarchicalOptions options;
    options.max_handovers = bound;
    std::uint32_t in_a_row = 0, most = 0;
    for (const Holding& holding : holdings_under("sim", options)) {
      in_a_row = holding.handed_over ? in_a_row + 1 : 0;
      most = std::max(most, in_a_row);
    }
    EXPECT_EQ(most, bound);
  }
}

TEST(HierarchicalLocksSim, WhoWaitsBehindItsOwnNodeSaysSo) {
  fabric::sim::SimCluster cluster(sim_options(2, false));
  ManagerOptions manager_options;
  manager_options.callers = 2;
  manager_options.wait_timeout = 5 * kMillisecond;
  testing::AssertionResult refused = testing::AssertionFailure() << "node 1 did not wait";
  cluster.run([&](Env& env) {
    Manager manager(env, manager_options);
    HierarchicalLocks locks(manager, "locks", 2);
    manager.wait_for_ready();
    if (env.node() == 1) {
      HierarchicalOp held = locks.start_acquire(manager.caller(0), 0);
      manager.caller(0).wait_until([&] { return held.poll(); }, "a lock");
      HierarchicalOp late = locks.start_acquire(manager.caller(1), 0);
      env.sleep_until(env.now() + 2 * manager_options.wait_timeout);
      refused = refuses([&] { late.poll(); }, ErrorCode::kTimeout, {"0", "locks", "1", "5"});
      locks.start_release(manager.caller(0), 0, {}).wait();
      locks.end_release(0);
    }
    env.sleep_until(100 * kMillisecond);  // no node leaves while another needs it
  });
  EXPECT_TRUE(refused);
}

constexpr Time kPatience = 5 * kMillisecond;

ManagerOptions patient_callers(std::uint32_t callers) {
  ManagerOptions options;
  options.callers = callers;
  options.wait_timeout = kPatience;
  return options;
}

/// Takes a turn now and then, until ready().
template <class Ready>
void turn_until(Caller& me, Ready&& ready) {
  while (!ready()) {
    me.env().sleep_until(me.env().now() + 2 * kMicrosecond);
    me.runtime().turn(me);
  }
}

void acquire(HierarchicalLocks& locks, Caller& me) {
  HierarchicalOp op = locks.start_acquire(me, 0);
  turn_until(me, [&] { return op.poll(); });
}

void release(HierarchicalLocks& locks, Caller& me) {
  locks.start_release(me, 0, {}).wait();
  locks.end_release(0);
}

// Caller 1 of node 1 waits in vain behind caller 0 of its node; caller 2 waits behind it.
TEST(HierarchicalLocksSim, AnAcquisitionThatTimesOutLeavesItsPlaceInTheQueue) {
  for (const Grant grant : {Grant::kTestAndSet, Grant::kTicket}) {
    for (const std::uint32_t handovers : {0U, 7U}) {
      fabric::sim::SimCluster cluster(sim_options(2, false));
      cluster.run([&](Env& env) {
        Manager manager(env, patient_callers(3));
        HierarchicalLocks locks(manager, "locks", 2, {.grant = grant, .max_handovers = handovers});
        manager.wait_for_ready();
        const Time begin = env.now();
        if (env.node() == 1) {
          acquire(locks, manager.caller(0));
          const auto second = env.spawn("second", [&] {
            Caller& me = manager.caller(1);
            EXPECT_TRUE(refuses([&] { acquire(locks, me); }, ErrorCode::kTimeout));
            EXPECT_TRUE(me.has_unfinished());
            turn_until(me, [&] { return !me.has_unfinished(); });
          });
          const auto third = env.spawn("third", [&] {
            env.sleep_until(begin + 4 * kMillisecond);
            acquire(locks, manager.caller(2));
            release(locks, manager.caller(2));
          });
          env.sleep_until(begin + 7 * kMillisecond);
          release(locks, manager.caller(0));
        } else {
          env.sleep_until(begin + 8 * kMillisecond);
          acquire(locks, manager.caller(0));
          release(locks, manager.caller(0));
        }
        env.sleep_until(begin + 100 * kMillisecond);  // no node leaves while another needs it
      });
    }
  }
}

// Node 1 drops an acquisition after each number of polls, while node 0 holds the lock.
TEST(HierarchicalLocksSim, ADroppedAcquisitionKeepsNothing) {
  for (const Grant grant : {Grant::kTestAndSet, Grant::kTicket}) {
    fabric::sim::SimCluster cluster(sim_options(2, false));
    cluster.run([&](Env& env) {
      Manager manager(env, patient_callers(1));
      HierarchicalLocks locks(manager, "locks", 2, {.grant = grant});
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      Time at = env.now();
      for (int polls = 0; polls < 12; ++polls) {
        at += 2 * kMillisecond;
        env.sleep_until(at);
        if (env.node() == 0) acquire(locks, me);
        env.sleep_until(at + 10 * kMicrosecond);
        if (env.node() == 1) {
          HierarchicalOp op = locks.start_acquire(me, 0);
          for (int i = 0; i < polls; ++i) {
            env.sleep_until(env.now() + 300);
            manager.turn(me);
            EXPECT_FALSE(op.poll());
          }
        }
        env.sleep_until(at + 100 * kMicrosecond);
        if (env.node() == 0) release(locks, me);
        turn_until(me, [&] { return !me.has_unfinished(); });
      }
      at += 2 * kMillisecond;
      env.sleep_until(at + env.node() * kMillisecond);
      acquire(locks, me);
      release(locks, me);
      env.sleep_until(at + 50 * kMillisecond);
    });
  }
}

TEST(HierarchicalLocksSim, ADeadHostIsNamedToEveryThreadOfTheQueue) {
  fabric::sim::SimCluster cluster(sim_options(2, false));
  ManagerOptions options = patient_callers(2);
  options.wait_timeout = kSecond;
  cluster.run([&](Env& env) {
    Manager manager(env, options);
    HierarchicalLocks locks(manager, "locks", 2);
    manager.wait_for_ready();
    const Time begin = env.now();
    env.sleep_until(begin + kMillisecond);
    if (env.node() == 0) {
      cluster.kill(0);
      env.sleep_until(kForever);
    }
    const auto acquires = [&](std::uint32_t i) {
      const auto step = [&] { acquire(locks, manager.caller(i)); };
      EXPECT_TRUE(refuses(step, ErrorCode::kUnavailable, {"locks", "0"}));
    };
    {
      const auto second = env.spawn("second", [&] { acquires(1); });
      acquires(0);
    }
    EXPECT_LT(env.now() - begin, kSecond / 2);
  });
}

}  // namespace
}  // namespace pyrdma::loco
