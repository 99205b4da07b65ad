// The ring buffer, over memory that places bytes late and out of order. Property L6: each reader's
// sequence is a prefix of the writer's sequence; no message is lost, duplicated, torn or
// overwritten.
#include "systems/loco/ring_buffer.h"

#include "base/error_test.h"
#include "systems/loco/barrier.h"
#include "systems/loco/worlds_test.h"

namespace pyrdma::loco {
namespace {

/// Message `i`: length and bytes depend on i.
std::vector<std::byte> message(std::uint64_t i) {
  std::vector<std::byte> bytes(mix64(i) % 200);
  for (std::size_t b = 0; b < bytes.size(); ++b) bytes[b] = static_cast<std::byte>(mix64(i) + b);
  return bytes;
}

/// Node 0 sends `count` messages. The others read all of them, each `later`. Returns the number of
/// messages that differ from the message sent.
std::uint64_t broadcast_all(Manager& manager, std::uint64_t count, Time later = 0) {
  RingBuffer ring(manager, "ring", 0, 1024);
  Barrier barrier(manager, "bar");
  manager.wait_for_ready();
  Caller& me = manager.caller(0);
  std::uint64_t wrong = 0;
  if (manager.self() == 0) {
    std::uint64_t end = 0;
    for (std::uint64_t i = 0; i < count; ++i) end = ring.broadcast(me, message(i));
    me.wait_until([&] { return ring.acknowledged(end); }, "acknowledgement by all readers");
    EXPECT_TRUE(ring.unacknowledged(end).empty());
  } else {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::optional<std::span<const std::byte>> got;
      me.wait_until([&] { return (got = ring.next(me)).has_value(); }, "a message");
      if (later != 0) manager.env().sleep_until(manager.env().now() + later);
      const std::vector<std::byte> want = message(i);
      wrong += !std::equal(got->begin(), got->end(), want.begin(), want.end());
      if (i % 3 == 2 || i + 1 == count) ring.acknowledge(me);
    }
    EXPECT_FALSE(ring.next(me).has_value());
  }
  barrier.wait(me);
  return wrong;
}

TEST_P(LocoWorlds, ARingBringsEveryMessageToEveryReader) {
  run(3, [&](Manager& manager) { EXPECT_EQ(broadcast_all(manager, 400), 0U); });
}

// A place may hold the very bytes of the next message. The reader takes that message before its
// last bytes are placed. Another caller's message of the next lap must not precede them.
TEST(LocoRingSim, CallersTakeTurns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fabric::sim::SimOptions world = sim_options(2, true, seed);
    world.memory.max_delay_ns = 40 * kMicrosecond;
    fabric::sim::SimCluster cluster(world);
    ManagerOptions options;
    options.callers = 2;
    options.wait_timeout = 100 * kMillisecond;
    cluster.run([&](Env& env) {
      constexpr std::uint64_t kCount = 301;
      Manager manager(env, options);
      RingBuffer ring(manager, "ring", 0, 128);
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      std::uint64_t end = 0;
      for (std::uint64_t i = 0; i < kCount; ++i) {
        if (manager.self() == 0) {
          // A lap has two messages of one caller. Each two laps have equal bytes.
          const std::vector<std::byte> bytes(24, static_cast<std::byte>(i / 4));
          end = ring.broadcast(manager.caller(i / 2 % 2), bytes);
        } else {
          me.wait_until([&] { return ring.next(me).has_value(); }, "a message");
          ring.acknowledge(me);
        }
      }
      if (manager.self() == 0)
        me.wait_until([&] { return ring.acknowledged(end); }, "acknowledgement");
      manager.leave();
    });
  }
}

/// Returns the number of wrong messages in five seeds of weak memory with the bug.
std::int64_t wrong_with(Bug bug, Time later) {
  std::int64_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    fabric::sim::SimCluster cluster(sim_options(2, true, seed));
    ManagerOptions options;
    options.bugs = bug;
    cluster.run([&](Env& env) {
      Manager manager(env, options);
      const std::uint64_t found = broadcast_all(manager, 200, later);
      if (env.node() == 1) wrong += static_cast<std::int64_t>(found);
      manager.leave();
    });
  }
  return wrong;
}

// A reader acknowledges with two callers in turn. An acknowledgement that came late would free less
// than the last one, for good. Messages are lost on the way, so that requests of two queue pairs
// overtake each other by much.
TEST(LocoRingSim, CallersOfAReaderTakeTurns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    fabric::sim::SimOptions world = sim_options(2, true, seed);
    world.faults[Fault::loss].rate = 0.01;
    fabric::sim::SimCluster cluster(world);
    ManagerOptions options;
    options.callers = 2;
    options.wait_timeout = 100 * kMillisecond;
    cluster.run([&](Env& env) {
      constexpr std::uint64_t kRounds = 100, kEach = 20;
      Manager manager(env, options);
      RingBuffer ring(manager, "ring", 0, 256);
      Barrier barrier(manager, "bar");
      manager.wait_for_ready();
      Caller& me = manager.caller(0);
      for (std::uint64_t i = 0; i < kRounds * kEach; ++i) {
        if (env.node() == 0) {
          const std::uint64_t end = ring.broadcast(me, {});
          if (i % kEach + 1 != kEach) continue;
          // The last acknowledgement of the round stays the last.
          me.wait_until([&] { return ring.acknowledged(end); }, "all acknowledgements");
          env.sleep_until(env.now() + 3 * kMillisecond);
          ASSERT_TRUE(ring.acknowledged(end)) << seed;
        } else {
          me.wait_until([&] { return ring.next(me).has_value(); }, "a message");
          ring.acknowledge(manager.caller(i % kEach == 5 ? 1 : 0));
        }
      }
      barrier.wait(me);
    });
  }
}

// Where the reader expects the next message lie bytes of an earlier one. They look like the head of
// a message that is longer than the ring.
TEST(LocoRingSim, BytesThatLookLikeAHeadAreNoMessage) {
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.run([](Env& env) {
    constexpr std::uint64_t kBytes = 256, kFrame = 16;
    Manager manager(env, ManagerOptions());
    RingBuffer ring(manager, "ring", 0, kBytes);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    const std::uint64_t head = ((kBytes + kFrame) / 16 + 1) << 32 | 0x7fffff00;
    std::vector<std::uint64_t> payload(6, head);
    const auto read_all = [&] {
      std::uint64_t messages = 0;
      while (ring.next(me)) ++messages;
      ring.acknowledge(me);
      return messages;
    };
    if (env.node() == 0) {
      for (int i = 0; i < 4; ++i) ring.broadcast(me, std::as_bytes(std::span(payload)));
    }
    barrier.wait(me);
    if (env.node() == 1) {
      EXPECT_EQ(read_all(), 4U);
    }
    barrier.wait(me);
    if (env.node() == 0) ring.broadcast(me, {});
    barrier.wait(me);
    if (env.node() == 1) {
      EXPECT_EQ(read_all(), 1U);
    }
    barrier.wait(me);
  });
}

TEST(LocoBugs, ATailThatIsAFlagIsKilled) {
  EXPECT_EQ(wrong_with(Bug::kNone, 0), 0);
  EXPECT_GT(wrong_with(Bug::kTailIsAFlag, 0), 0);
}

TEST(LocoBugs, AnAcknowledgementBeforeTheCopyIsKilled) {
  EXPECT_EQ(wrong_with(Bug::kNone, 20 * kMicrosecond), 0);
  EXPECT_GT(wrong_with(Bug::kAcknowledgedBeforeCopied, 20 * kMicrosecond), 0);
}

TEST_P(LocoPatienceSim, AReaderThatDoesNotAcknowledgeIsNamed) {
  ManagerOptions options;
  options.wait_timeout = 20 * kMillisecond;
  run(
      3,
      [&](Manager& manager) {
        RingBuffer ring(manager, "ring", 0, 256);
        Barrier barrier(manager, "bar");
        manager.wait_for_ready();
        Caller& me = manager.caller(0);
        const Time start = manager.env().now();
        const std::vector<std::byte> bytes(64);
        if (manager.self() == 0) {
          const auto fill = [&] {
            for (int i = 0; i < 10; ++i) ring.broadcast(me, bytes);
          };
          EXPECT_TRUE(refuses(fill, ErrorCode::kTimeout, {"ring", "2"})) << "of the slow reader";
          EXPECT_EQ(blamed_by(fill), std::vector<NodeId>{2});
          EXPECT_TRUE(refuses([&] { ring.broadcast(me, std::vector<std::byte>(121)); },
                              ErrorCode::kInvalidArgument, {"121"}));
          EXPECT_FALSE(ring.try_broadcast(me, bytes).has_value());
        } else if (manager.self() == 1) {
          for (int i = 0; i < 3; ++i) {
            me.wait_until([&] { return ring.next(me).has_value(); }, "a message");
          }
          ring.acknowledge(me);
        }
        manager.env().sleep_until(start + 3 * options.wait_timeout);  // the writer waits twice
        barrier.wait(me);
      },
      options);
}

}  // namespace
}  // namespace pyrdma::loco
