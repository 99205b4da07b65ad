// Numbers that count up begin near the ends of their ranges, and go beyond.
#include <algorithm>
#include <array>

#include "base/error_test.h"
#include "systems/loco/barrier.h"
#include "systems/loco/kvstore/small_store_test.h"
#include "systems/loco/ring_buffer.h"
#include "systems/loco/shared_queue.h"
#include "systems/loco/ticket_lock.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

class LocoFirstNumbersSim : public testing::Test {
 protected:
  static void run(std::uint32_t nodes, const std::function<void(Manager&)>& per_node,
                  std::uint32_t callers = 1) {
    ManagerOptions options;
    options.callers = callers;
    options.wait_timeout = 20 * kMillisecond;
    run_nodes("sim", nodes, options, per_node);
  }
};

TEST_F(LocoFirstNumbersSim, TheLastTicketIsFollowedByTheFirst) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    TicketLockOptions options = TicketLockOptions::of(preset);
    options.first_ticket = TicketLocks::kTickets - 5;
    std::uint64_t sum = 0, inside = 0;
    run(3, [&](Manager& manager) {
      TicketLock lock(manager, "lock", options);
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      for (int i = 0; i < 10; ++i) {
        const auto ticket = lock.acquire(me);
        EXPECT_EQ(++inside, 1U);
        EXPECT_EQ(ticket, (options.first_ticket + sum++) & TicketLocks::kTickets);
        manager.env().sleep_until(manager.env().now() + 500);
        --inside;
        lock.release(me, Fence::kNone);
      }
      barrier.wait(me);
    });
    EXPECT_EQ(sum, 30U);
  }
}

TEST_F(LocoFirstNumbersSim, ATryTakesTheLastTicketAndTheFirst) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    TicketLockOptions options = TicketLockOptions::of(preset);
    options.first_ticket = TicketLocks::kTickets;
    run(2, [&](Manager& manager) {
      TicketLock lock(manager, "lock", options);
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      for (NodeId turn = 0; turn < 6; ++turn) {
        if (turn % 2 == manager.self()) {
          EXPECT_TRUE(lock.try_acquire(me)) << turn;
        }
        barrier.wait(me);
        if (turn % 2 != manager.self()) {
          EXPECT_FALSE(lock.try_acquire(me)) << turn;
        }
        barrier.wait(me);
        if (turn % 2 == manager.self()) lock.release(me, Fence::kNone).wait();
        barrier.wait(me);
      }
    });
  }
}

TEST_F(LocoFirstNumbersSim, TheMarkOfDoubtIsNoPartOfTheTicket) {
  for (const Preset preset : {Preset::kPaper, Preset::kBest}) {
    TicketLockOptions options = TicketLockOptions::of(preset);
    options.first_ticket = TicketLocks::kTickets - 1;
    run(2, [&](Manager& manager) {
      TicketLock lock(manager, "lock", options);
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      for (std::uint64_t turn = 0; turn < 6; ++turn) {
        if (turn % 2 == manager.self()) {
          EXPECT_EQ(lock.acquire(me), (options.first_ticket + turn) & TicketLocks::kTickets);
          EXPECT_EQ(lock.in_doubt(0), turn > 0);
          lock.start_release(me, 0, turn == 0).wait();
        }
        barrier.wait(me);
      }
    });
  }
}

TEST_F(LocoFirstNumbersSim, AWaiterThatTimesOutNamesTheTicketThatIsServed) {
  TicketLockOptions options;
  options.first_ticket = TicketLocks::kTickets;
  run(2, [&](Manager& manager) {
    TicketLock lock(manager, "lock", options);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    if (manager.self() == 0) {
      lock.acquire(me);
    } else {
      manager.env().sleep_until(manager.env().now() + 100 * kMicrosecond);
      const std::string served = std::to_string(TicketLocks::kTickets);
      EXPECT_TRUE(refuses([&] { lock.acquire(me); }, ErrorCode::kTimeout,
                          {"ticket 0", served, "caller 0 of node 0"}));
    }
    if (manager.self() == 0) {
      manager.env().sleep_until(manager.env().now() + 40 * kMillisecond);
      lock.release(me, Fence::kNone);
    }
    me.wait_until([&] { return !me.has_unfinished(); }, "end of the acquisition");
    barrier.wait(me);
  });
}

TEST_F(LocoFirstNumbersSim, WordsOnTheNicBeginWithZero) {
  TicketLockOptions options;
  options.first_ticket = 1;
  options.placement = Placement::kDevice;
  run(1, [&](Manager& manager) {
    EXPECT_TRUE(refuses([&] { TicketLock(manager, "lock", options); }, ErrorCode::kInvalidArgument,
                        {"1", "NIC"}));
  });
}

TEST_F(LocoFirstNumbersSim, TheTicketsOfAQueueComeAgain) {
  run(3, [](Manager& manager) {
    SharedQueueOf<std::uint64_t> queue(manager, "queue", 4, {}, ~std::uint64_t{0} - 5);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    for (std::uint64_t round = 0; round < 5; ++round) {
      if (manager.self() == round % 3) {
        EXPECT_FALSE(queue.try_pop(me));
        for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(queue.try_push(me, 10 * round + i));
        EXPECT_FALSE(queue.try_push(me, 99));
      }
      barrier.wait(me);
      if (manager.self() == (round + 1) % 3) {
        for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(queue.pop(me), 10 * round + i);
      }
      barrier.wait(me);
    }
  });
}

TEST_F(LocoFirstNumbersSim, ThePositionsOfARingComeAgain) {
  // The end of the number in the head of a message, and that of positions.
  for (const std::uint64_t end : {std::uint64_t{1} << 36, std::uint64_t{0}}) {
    run(2, [&](Manager& manager) {
      RingBuffer ring(manager, "ring", 0, 256, {}, end - 160);
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      constexpr std::uint64_t kCount = 40;
      std::uint64_t last = 0;
      for (std::uint64_t i = 0; i < kCount; ++i) {
        const std::array<std::uint64_t, 3> words{i, i, i};
        if (manager.self() == 0) {
          last = ring.broadcast(me, std::as_bytes(std::span(words)));
          continue;
        }
        std::optional<std::span<const std::byte>> got;
        me.wait_until([&] { return (got = ring.next(me)).has_value(); }, "a message");
        EXPECT_TRUE(std::ranges::equal(*got, std::as_bytes(std::span(words)))) << i;
        ring.acknowledge(me);
      }
      if (manager.self() == 0) {
        EXPECT_LT(last - end, kCount * 48);  // beyond the end
        me.wait_until([&] { return ring.acknowledged(last); }, "acknowledgement");
        EXPECT_FALSE(ring.acknowledged(last + 16));
      }
      barrier.wait(me);
    });
  }
}

TEST_F(LocoFirstNumbersSim, TheRoundsOfABarrierComeAgain) {
  std::uint32_t arrived = 0;
  run(3, [&](Manager& manager) {
    Barrier barrier(manager, "bar", {}, ~std::uint64_t{0} - 2);
    manager.wait_for_ready();
    for (std::uint32_t round = 1; round <= 6; ++round) {
      manager.env().sleep_until(manager.env().now() + manager.self() * 50 * kMicrosecond);
      ++arrived;
      barrier.wait(manager.caller(0));
      EXPECT_GE(arrived, 3 * round);
    }
  });
}

TEST_F(LocoFirstNumbersSim, TheCounterOfASlotComesAgainWithoutZero) {
  KvOptions options = small_store(8);
  options.slots = 1;
  options.first_counter = kCounterMask;
  for (const bool stored : {false, true}) {
    run(
        2,
        [&](Manager& manager) {
          KvStore store(manager, "store", options);
          Barrier barrier(manager, "bar");
          manager.wait_for_ready();
          store.load(2, stored);
          Caller& me = manager.caller(0);
          barrier.wait(me);
          const Key mine = manager.self();
          for (const std::uint32_t counter : {kCounterMask, 1U, 2U}) {
            EXPECT_EQ(store.locate(mine)->counter, counter);
            std::uint64_t value = 0;
            const auto bytes = std::as_writable_bytes(std::span(&value, 1));
            EXPECT_EQ(store.lookup(me, mine, bytes), Outcome::kOk);
            EXPECT_EQ(value, mine);
            EXPECT_EQ(store.remove(me, mine), Outcome::kOk);
            EXPECT_EQ(store.lookup(me, mine, bytes), Outcome::kMissing);
            EXPECT_EQ(store.insert(me, mine, bytes), Outcome::kOk);
          }
          barrier.wait(me);
        },
        2);
  }
}

}  // namespace
}  // namespace pyrdma::loco
