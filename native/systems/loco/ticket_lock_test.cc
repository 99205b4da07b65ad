// Ticket locks: exclusion across nodes and threads, hand-over, fences, and errors.
#include "systems/loco/ticket_lock.h"

#include <vector>

#include "base/error_test.h"
#include "systems/loco/barrier.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

// Increments a word by a read and a write, not atomically: without the lock increments are lost.
void add_one(Caller& me, SharedRegion& region, NodeId at, Fence fence, TicketLocks& locks,
             std::uint64_t lock) {
  MemRef word = me.block(8);
  EXPECT_EQ(region.read(me, at, 0, word.sge(8)).wait(), fabric::Status::kSuccess);
  ++*word.as<std::uint64_t>();
  AckKey key = region.write(me, at, 0, word.sge(8));
  key.keep(std::move(word));
  if (fence == Fence::kNone) {
    EXPECT_EQ(me.fence_thread(), fabric::Status::kSuccess);
  }
  locks.release(me, lock, fence);
}

void count_under_a_lock(Manager& manager, Fence fence, NodeId data,
                        const TicketLockOptions& options) {
  TicketLocks locks(manager, "locks", 4, options);
  SharedRegion region(manager, "data", 8, kReadWrite);
  Barrier barrier(manager, "bar");
  manager.wait_for_ready();
  constexpr std::uint64_t kRounds = 40;
  const auto body = [&](Caller& me) {
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      locks.acquire(me, 1);
      add_one(me, region, data, fence, locks, 1);
    }
  };
  {
    const auto second = manager.env().spawn("second", [&] { body(manager.caller(1)); });
    body(manager.caller(0));
  }
  Caller& me = manager.caller(0);
  barrier.wait(me);
  MemRef word = me.block(8);
  EXPECT_EQ(region.read(me, data, 0, word.sge(8)).wait(), fabric::Status::kSuccess);
  EXPECT_EQ(*word.as<std::uint64_t>(), 2 * kRounds * manager.nodes());
  barrier.wait(me);
}

ManagerOptions two_callers() {
  ManagerOptions options;
  options.callers = 2;
  return options;
}

TEST_P(LocoWorlds, ThePairFenceSufficesForDataAtTheLocksHost) {
  run(
      3, [](Manager& manager) { count_under_a_lock(manager, Fence::kPair, 1, {}); }, two_callers());
}

TEST_P(LocoWorlds, TheThreadFenceSufficesForDataAnywhere) {
  run(
      3, [](Manager& manager) { count_under_a_lock(manager, Fence::kThread, 2, {}); },
      two_callers());
}

TEST_P(LocoWorlds, NoFenceSufficesAfterOnesOwn) {
  run(
      3, [](Manager& manager) { count_under_a_lock(manager, Fence::kNone, 0, {}); }, two_callers());
}

TEST_P(LocoWorlds, TheGlobalFenceAndNoHandovers) {
  TicketLockOptions options;
  options.max_handovers = 0;
  options.backoff = 0;
  run(
      3, [&](Manager& manager) { count_under_a_lock(manager, Fence::kGlobal, 0, options); },
      two_callers());
}

TEST_P(LocoWorlds, WordsOnTheNic) {
  TicketLockOptions options;
  options.placement = Placement::kDevice;
  run(
      2, [&](Manager& manager) { count_under_a_lock(manager, Fence::kPair, 1, options); },
      two_callers());
}

using Switch = bool TicketLockOptions::*;
constexpr Switch kSwitches[] = {
    &TicketLockOptions::combined_request, &TicketLockOptions::release_by_write,
    &TicketLockOptions::unawaited_release, &TicketLockOptions::unawaited_fence,
    &TicketLockOptions::one_doorbell};

TEST_P(LocoWorlds, ThePapersProtocolExcludesAndSoDoesEachOfItsStepsAlone) {
  std::vector<TicketLockOptions> all = {TicketLockOptions::of(Preset::kPaper)};
  for (const Switch one : kSwitches) {
    all.emplace_back().*one = false;
    all.emplace_back(all.front()).*one = true;
  }
  for (const TicketLockOptions& options : all) {
    run(
        2, [&](Manager& manager) { count_under_a_lock(manager, Fence::kPair, 1, options); },
        two_callers());
  }
  for (const Fence fence : {Fence::kThread, Fence::kNone}) {
    run(
        3, [&](Manager& manager) { count_under_a_lock(manager, fence, 0, all.front()); },
        two_callers());
  }
}

/// Measures the acquisition of a free lock and its release with a write, in round trips.
std::pair<double, double> round_trips(const TicketLockOptions& options) {
  double acquired = 0, released = 0;
  fabric::sim::SimOptions far = sim_options(2, false);
  far.profile.link_propagation_ns = 1000;  // trips differ little by what the CPU and the NIC do
  fabric::sim::SimCluster cluster(far);
  cluster.run([&](Env& env) {
    Manager manager(env, {});
    TicketLock lock(manager, "lock", options);
    SharedRegion region(manager, "data", 8, kReadWrite);
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    if (env.node() == 1) {
      MemRef word = me.block(8);
      const auto time = [&](const std::function<void()>& act) {
        const Time begin = env.now();
        act();
        return static_cast<double>(env.now() - begin);
      };
      const fabric::Sge sge = word.sge(8);
      region.read(me, 0, 0, sge).wait();  // fills the NICs' caches
      const double trip = time([&] { region.read(me, 0, 0, sge).wait(); });
      acquired = time([&] { lock.acquire(me); }) / trip;
      Requests write;
      write.add(fabric::Opcode::kWrite, region.at(0), 0, sge);
      TicketLocks& locks = lock;
      AckKey key;
      released = time([&] { key = locks.release(me, 0, Fence::kPair, write); }) / trip;
      key.wait();
    }
    manager.leave();
  });
  return {acquired, released};
}

// The margins are there because a round trip takes another time for each kind of request. The NIC
// reads a list of requests from the ring, which takes longer than a doorbell that carries one
// request.
TEST(TicketLocksSim, EachSwitchSavesTheRoundTripsThatItSays) {
  const auto about = [](double trips, double wanted) {
    return trips > wanted - 0.5 && trips < wanted + 0.35;
  };
  const auto paper = TicketLockOptions::of(Preset::kPaper);
  const auto [paper_acquires, paper_releases] = round_trips(paper);
  EXPECT_TRUE(about(paper_acquires, 2)) << "the ticket, then now_serving: " << paper_acquires;
  EXPECT_TRUE(about(paper_releases, 2)) << "the write, then the release: " << paper_releases;
  const auto [acquires, releases] = round_trips({});
  EXPECT_TRUE(about(acquires, 1)) << acquires;
  EXPECT_TRUE(about(releases, 0)) << releases;
  TicketLockOptions one = paper;
  one.combined_request = true;
  EXPECT_TRUE(about(round_trips(one).first, 1));
  one = paper;
  one.unawaited_fence = true;
  const double unawaited_fence = round_trips(one).second;
  EXPECT_TRUE(about(unawaited_fence, 1)) << unawaited_fence;
  one.one_doorbell = true;
  EXPECT_TRUE(about(round_trips(one).second, 1)) << "it saves time of the CPU, no round trip";
  one.unawaited_release = true;
  EXPECT_TRUE(about(round_trips(one).second, 0));
}

// A write to the NIC's own memory overtakes writes on their way to the host's memory.
TEST(TicketLocksSim, WordsOnTheNicDoNotOvertakeTheData) {
  TicketLockOptions options;
  options.placement = Placement::kDevice;
  options.max_handovers = 0;
  options.backoff = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    fabric::sim::SimCluster cluster(sim_options(3, true, seed));
    cluster.run([&](Env& env) {
      Manager manager(env, two_callers());
      count_under_a_lock(manager, Fence::kPair, 1, options);
      manager.leave();
    });
  }
}

// One thread drives many acquisitions, two of them for one lock.
TEST_P(LocoWorlds, OneThreadWaitsForManyLocks) {
  run(3, [](Manager& manager) {
    constexpr std::uint64_t kLocks = 7, kRounds = 20;
    TicketLocks locks(manager, "locks", kLocks);
    SharedRegion region(manager, "data", 8 * kLocks, kReadWrite);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      // Every node acquires in the same order, and holds lock 0 once at a time: no deadlock.
      std::vector<AcquireOp> window;
      for (std::uint64_t lock = 0; lock < kLocks; ++lock) {
        window.push_back(locks.start_acquire(me, lock));
        me.wait_until([&] { return window.back().poll(); }, "a lock");
        EXPECT_EQ(window.back().index(), lock);
      }
      AcquireOp again = locks.start_acquire(me, 0);
      EXPECT_FALSE(again.poll());
      AckKey released;
      for (std::uint64_t lock = 0; lock < kLocks; ++lock) {
        MemRef word = me.block(8);
        const NodeId host = locks.host_of(lock);
        EXPECT_EQ(region.read(me, host, 8 * lock, word.sge(8)).wait(), fabric::Status::kSuccess);
        ++*word.as<std::uint64_t>();
        const fabric::Sge from = word.sge(8);
        Requests write;
        write.add(fabric::Opcode::kWrite, region.at(host), 8 * lock, from);
        AckKey key = locks.release(me, lock, Fence::kPair, write);
        EXPECT_EQ(key.wait(), fabric::Status::kSuccess);
      }
      me.wait_until([&] { return again.poll(); }, "a lock");
      EXPECT_EQ(locks.release(me, 0, Fence::kPair).wait(), fabric::Status::kSuccess);
    }
    barrier.wait(me);
    for (std::uint64_t lock = 0; lock < kLocks; ++lock) {
      MemRef word = me.block(8);
      EXPECT_EQ(region.read(me, locks.host_of(lock), 8 * lock, word.sge(8)).wait(),
                fabric::Status::kSuccess);
      EXPECT_EQ(*word.as<std::uint64_t>(), 3 * kRounds);
    }
    barrier.wait(me);
  });
}

TEST_P(LocoWorlds, AStrangersReleaseNamesLockAndHolder) {
  run(2, [](Manager& manager) {
    TicketLock lock(manager, "lock");
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    if (manager.self() == 1) lock.acquire(me);
    barrier.wait(me);
    if (manager.self() == 0) {
      EXPECT_TRUE(refuses([&] { lock.release(me, Fence::kPair); }, ErrorCode::kInvalidArgument,
                          {"lock", "0", "1"}));
    }
    barrier.wait(me);
    if (manager.self() == 1) lock.release(me, Fence::kPair);
    barrier.wait(me);
    EXPECT_TRUE(
        refuses([&] { lock.release(me, Fence::kPair); }, ErrorCode::kInvalidArgument, {"lock"}));
    barrier.wait(me);
  });
}

TEST_P(LocoPatienceSim, ALockThatIsNotGivenBackInTimeIsReported) {
  const Time timeout = 50 * kMillisecond;
  ManagerOptions options;
  options.wait_timeout = timeout;
  run(
      2,
      [](Manager& manager) {
        TicketLocks locks(manager, "locks", 2);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        Caller& me = manager.caller(0);
        if (manager.self() == 1) locks.acquire(me, 1);
        barrier.wait(me);
        if (manager.self() == 0) {
          EXPECT_TRUE(refuses([&] { locks.acquire(me, 1); }, ErrorCode::kTimeout,
                              {"locks", "0", "1", std::to_string(timeout / kMillisecond)}));
        } else {
          Env& env = manager.env();
          const Time until = env.now() + timeout + timeout / 4;
          while (env.now() < until) {
            manager.turn();
            env.sleep_until(env.now() + kMillisecond);
          }
        }
        // The acquisition that timed out has passed its ticket on.
        barrier.wait(me);
        if (manager.self() == 1) locks.release(me, 1, Fence::kPair);
        locks.acquire(me, 1);
        locks.release(me, 1, Fence::kPair);
        barrier.wait(me);
      },
      options);
}

// Returns how many of 40 runs lose an increment. The word is not at the lock's host, so the release
// needs the thread fence.
int runs_that_lose(Bug bug, bool weak) {
  int losing = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    fabric::sim::SimCluster cluster(sim_options(3, weak, seed));
    ManagerOptions options;
    options.bugs = bug;
    options.wait_timeout = 20 * kMillisecond;
    std::uint64_t counted = 0;
    constexpr std::uint64_t kRounds = 30;
    try {
      cluster.run([&](Env& env) {
        Manager manager(env, options);
        TicketLock lock(manager, "lock");
        SharedRegion region(manager, "data", 8, kReadWrite);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        Caller& me = manager.caller(0);
        Rng rng = env.rng("pauses");  // some tickets are then taken at the same time
        for (std::uint64_t i = 0; i < kRounds; ++i) {
          env.work(static_cast<Time>(rng.below(20'000)));
          lock.acquire(me);
          add_one(me, region, 2, Fence::kThread, lock, 0);
        }
        barrier.wait(me);
        if (env.node() == 2) {
          counted = load_acquire(reinterpret_cast<const std::uint64_t*>(region.local()));
        }
        barrier.wait(me);
        manager.leave();
      });
    } catch (const Error&) {  // two threads have one ticket: it is never served again
    }
    losing += counted != 3 * kRounds;
  }
  return losing;
}

TEST(LocoBugs, AReleaseWithoutItsFenceLosesIncrements) {
  EXPECT_EQ(runs_that_lose(Bug::kNone, true), 0);
  EXPECT_GT(runs_that_lose(Bug::kReleaseWithoutFence, true), 0);
  EXPECT_EQ(runs_that_lose(Bug::kReleaseWithoutFence, false), 0) << "it needs late placement";
}

TEST_P(LocoWorlds, ATryTakesALockThatIsFreeAndLeavesNoTicketOtherwise) {
  run(
      2,
      [&](Manager& manager) {
        TicketLocks locks(manager, "locks", 2);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        Caller& me = manager.caller(0);
        for (std::uint64_t lock = 0; lock < 2; ++lock) {
          if (manager.self() == 0) {
            EXPECT_TRUE(locks.try_acquire(me, lock));
            EXPECT_FALSE(locks.try_acquire(manager.caller(1), lock)) << "a thread of the node";
          }
          barrier.wait(me);
          for (int i = 0; i < 100; ++i) EXPECT_FALSE(locks.try_acquire(me, lock));
          barrier.wait(me);
          if (manager.self() == 0) locks.release(me, lock, Fence::kNone).wait();
          barrier.wait(me);
          EXPECT_FALSE(me.has_unfinished());
          if (manager.self() == 1) {
            EXPECT_TRUE(locks.try_acquire(me, lock));
            locks.release(me, lock, Fence::kNone).wait();
            EXPECT_EQ(locks.acquire(me, lock), 2U) << "no try that failed took a ticket";
            locks.release(me, lock, Fence::kNone);
          }
          barrier.wait(me);
        }
      },
      two_callers());
}

// Tries and acquisitions meet. Each increment happens under the lock.
TEST(TicketLocksSim, TriesExcludeEachOther) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fabric::sim::SimCluster cluster(sim_options(3, true, seed));
    std::uint64_t held = 0;
    cluster.run([&](Env& env) {
      Manager manager(env, two_callers());
      TicketLocks locks(manager, "locks", 4);
      SharedRegion region(manager, "data", 8, kReadWrite);
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      Rng rng = env.rng("tries");
      const auto body = [&](Caller& me) {
        for (int i = 0; i < 40; ++i) {
          env.work(static_cast<Time>(rng.below(10'000)));
          if (rng.below(4) == 0) {
            locks.acquire(me, 1);
          } else if (!locks.try_acquire(me, 1)) {
            continue;
          }
          ++held;
          add_one(me, region, 2, Fence::kThread, locks, 1);
        }
      };
      {
        const auto second = env.spawn("second", [&] { body(manager.caller(1)); });
        body(manager.caller(0));
      }
      Caller& me = manager.caller(0);
      barrier.wait(me);
      if (env.node() == 2) {
        EXPECT_EQ(load_acquire(reinterpret_cast<const std::uint64_t*>(region.local())), held);
      }
      barrier.wait(me);
      manager.leave();
    });
    EXPECT_GT(held, 40U);
    EXPECT_LT(held, 230U) << "of 240";
  }
}

}  // namespace
}  // namespace pyrdma::loco
