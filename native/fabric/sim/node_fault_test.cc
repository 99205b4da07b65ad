// Tests of the faults of whole nodes. Nodes pause, slow down, crash and restart, and their clocks
// are off.
#include <gtest/gtest.h>

#include <array>

#include "env/storage.h"
#include "fabric/sim/faulty_world_test.h"

namespace pyrdma::fabric::sim {
namespace {

TEST(NodeFaults, APausedNodesMemoryAnswers) {
  FaultyWorld world({});
  Status status = Status::kGeneral;
  Time wrote = 0, resumed = 0;
  world.cluster.run([&](Env& env) {
    Side side(world, env.node());
    auto qp = side.queue_pair();
    Rendezvous& r = side.device.rendezvous();
    r.publish_value("qp" + std::to_string(env.node()), qp->address());
    r.publish_value("mr" + std::to_string(env.node()), side.memory->remote());
    const std::string peer = std::to_string(1 - env.node());
    qp->connect(r.await_value<QpAddress>("qp" + peer, kForever));
    const auto remote = r.await_value<RemoteRegion>("mr" + peer, kForever);
    if (env.node() == 0) {
      env.sleep_until(env.now() + 100 * kMicrosecond);
      world.cluster.pause(1, kMillisecond);
      EXPECT_TRUE(qp->write(side.memory->sge(0, 8), remote, 64));
      status = side.await_send().status;
      wrote = world.cluster.now();
    } else {
      for (Time last = env.now();;) {
        env.sleep_until(last + 10 * kMicrosecond);
        const Time now = env.now();
        if (now - last > 500 * kMicrosecond) {
          resumed = world.cluster.now();
          break;
        }
        last = now;
      }
    }
  });
  EXPECT_EQ(status, Status::kSuccess);
  EXPECT_LT(wrote + 500 * kMicrosecond, resumed);
}

// The clock of the slow thread is far ahead when it rings the doorbell.
TEST(NodeFaults, ASlowThreadDoesNotKeepTheNicFromOthers) {
  FaultyWorld world({});
  Side here(world, 0), there(world, 1);
  QpOptions options;
  options.max_inline = 64;  // the NIC takes an inline request at once, without its turn
  const auto connected = [&] {
    auto one = here.queue_pair(options), other = there.queue_pair(options);
    one->connect(other->address());
    other->connect(one->address());
    return std::pair(std::move(one), std::move(other));
  };
  const auto slow = connected(), quick = connected();
  const auto write = [&](QueuePair& qp) {
    return qp.write(here.memory->sge(0, 8), there.memory->remote(), 64, 0, kSignaled | kInline);
  };
  Time posted = 0, ended = 0;
  world.cluster.run([&](Env& env) {
    if (env.node() != 0) return;
    const Time begin = env.now();
    world.cluster.slow_down(0, 10, 10 * kMicrosecond);
    const auto thread = env.spawn("slow", [&] {
      EXPECT_TRUE(write(*slow.first));
      posted = env.now();
    });
    env.sleep_until(begin + 20 * kMicrosecond);
    EXPECT_TRUE(write(*quick.first));
    EXPECT_EQ(here.await_send().status, Status::kSuccess);
    ended = env.now();
    thread->join();
    EXPECT_EQ(here.await_send().status, Status::kSuccess);
  });
  EXPECT_LT(ended + 10 * kMicrosecond, posted);
}

TEST(NodeFaults, ACrashedNodeComesBackWithTheNextIncarnation) {
  FaultyWorld world({});
  std::vector<std::uint32_t> incarnations;
  world.cluster.run([&](Env& env) {
    if (env.node() == 1) {
      incarnations.push_back(env.incarnation());
      Side side(world, 1);
      if (env.incarnation() < 2) env.poll_until([] { return false; }, kForever);
      return;
    }
    for (int i = 0; i < 2; ++i) {
      env.sleep_until(env.now() + kMillisecond);
      world.cluster.expect_restart(1);
      world.cluster.kill(1, i == 0 ? Crash::kProcess : Crash::kHost);
      env.sleep_until(env.now() + kMillisecond);
      world.cluster.restart(1);
    }
  });
  EXPECT_EQ(incarnations, (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(NodeFaults, DeathsAndRestartsComeWhenTheyAreDue) {
  FaultyWorld world({});
  std::vector<Time> starts;
  world.cluster.run([&](Env& env) {
    if (env.node() == 0) {
      world.cluster.kill_later(1, kMillisecond);
      world.cluster.restart_later(1, 3 * kMillisecond);
      return;
    }
    starts.push_back(world.cluster.now());
    if (env.incarnation() == 0) env.poll_until([] { return false; }, kForever);
  });
  EXPECT_EQ(starts, (std::vector<Time>{0, 3 * kMillisecond}));
}

TEST(NodeFaults, ARandomCrashIsFollowedByARestartAndHealingBringsAllBack) {
  for (const char* kind : {"crash", "host_crash", "battery_crash"}) {
    const std::string key = kind;
    FaultyWorld world({{key, 5}, {"number_reuse", 1}, {"heal_at_ns", 3e6}}, 4);
    std::array<std::uint32_t, 4> starts{};
    world.cluster.run([&](Env& env) {
      ++starts[env.node()];
      Side side(world, env.node());
      auto qp = side.queue_pair();
      env.sleep_until(4 * kMillisecond);
    });
    const std::uint64_t crashes = world.reached(fault_named(kind));
    EXPECT_GT(crashes, 3u);
    EXPECT_EQ(starts[0] + starts[1] + starts[2] + starts[3], 4 + crashes);
    EXPECT_EQ(world.reached(Fault::number_reuse), crashes);
  }
}

TEST(NodeFaults, ABatterySavesRegisteredMemory) {
  FaultyWorld world({{"torn_crash", 0.5}});
  std::string recovered;
  world.cluster.run([&](Env& env) {
    if (env.node() != 1) {
      env.sleep_until(kMillisecond);
      world.cluster.expect_restart(1);
      world.cluster.kill(1, Crash::kHostBattery);
      env.sleep_until(env.now() + kMillisecond);
      world.cluster.restart(1);
      return;
    }
    if (env.incarnation() == 0) {
      Side side(world, 1);
      std::memcpy(side.memory->data(), "what was there", 15);
      env.poll_until([] { return false; }, kForever);
    }
    char text[15] = {};
    env.storage().open("memory-0")->read(0, std::as_writable_bytes(std::span(text)));
    recovered = text;
  });
  EXPECT_EQ(recovered, "what was there");
}

TEST(NodeFaults, ClocksAreOffDriftAndJumpForward) {
  FaultyWorld world({{"clock_skew", 1}, {"clock_jump", 5}, {"heal_at_ns", 3e6}}, 4);
  std::array<Time, 4> ends{};
  world.cluster.run([&](Env& env) {
    Time last = env.now();
    for (int i = 0; i < 200; ++i) {
      const Time wanted = env.now() + 20 * kMicrosecond;
      env.sleep_until(wanted);
      const Time now = env.now();
      EXPECT_GE(now, wanted) << "the thread slept for a time of its own node's clock";
      EXPECT_GE(now, last);
      last = now;
    }
    ends[env.node()] = last - world.cluster.now();
  });
  EXPECT_NE(ends[0], ends[1]);
  EXPECT_GT(world.reached(Fault::clock_jump), 3u);
  EXPECT_EQ(world.reached(Fault::clock_skew), 4u);
}

TEST(NodeFaults, APreemptedThreadIsOvertakenInTheMiddleOfAStep) {
  FaultyWorld world(
      {{"preemption.rate", 1}, {"preemption.min_ns", 5000}, {"preemption.max_ns", 5000}});
  world.cluster.run([&](Env& env) {
    if (env.node() != 0) return;
    std::vector<int> order;
    const auto other = env.spawn("other", [&] { order.push_back(1); });
    env.charge(Cost::kAtomic);  // a step without a wait
    order.push_back(2);
    other->join();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
  });
  EXPECT_GT(world.reached(Fault::preemption), 0U);
}

TEST(NodeFaults, AThreadThatIsKilledInAPreemptionUnwindsAtItsNextWait) {
  FaultyWorld world(
      {{"preemption.rate", 1}, {"preemption.min_ns", 50'000}, {"preemption.max_ns", 50'000}});
  int destroyed = 0, passed = 0, begun = 0;
  struct Charges {  // a destructor must not throw
    Env& env;
    int& destroyed;
    ~Charges() {
      env.charge(Cost::kAtomic);
      ++destroyed;
    }
  };
  world.cluster.run([&](Env& env) {
    if (env.node() == 1) {
      env.sleep_until(10 * kMicrosecond);
      return world.cluster.kill(0);
    }
    { const Charges charges{env, destroyed}; }
    const auto never = env.spawn("never", [&] { ++begun; });
    env.sleep_until(env.now() + kMillisecond);
    ++passed;
  });
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(passed, 0);
  EXPECT_EQ(begun, 0) << "a killed thread's new thread runs";
}

TEST(NodeFaults, FaultsThatAreHeldBackBeginLater) {
  SimOptions options;
  options.profile = test_profile();
  options.faults.enable(Fault::clock_jump, 100);
  options.faults.enable(Fault::preemption, 100);
  options.faults.enable(Fault::slow_node, 100);
  options.faults.at_once = false;
  SimCluster cluster(options);
  const auto fired = [&](Fault fault) {
    return cluster.fault_counters().fired[static_cast<std::size_t>(fault)];
  };
  cluster.run([&](Env& env) {
    if (env.node() != 0) return;
    env.sleep_until(kMillisecond);
    env.charge(Cost::kAtomic);
    EXPECT_EQ(fired(Fault::clock_jump) + fired(Fault::preemption) + fired(Fault::slow_node), 0U);
    cluster.begin_faults();
    env.sleep_until(env.now() + kMillisecond);
    env.charge(Cost::kAtomic);
    EXPECT_GT(fired(Fault::clock_jump), 0U);
    EXPECT_GT(fired(Fault::preemption), 0U);
    EXPECT_GT(fired(Fault::slow_node), 0U);
  });
}

TEST(NodeFaults, ASlowNodeTakesLonger) {
  FaultyWorld world({});
  std::array<Time, 2> took{};
  for (const bool slow : {false, true}) {
    if (slow) world.cluster.slow_down(0, 5, kSecond);
    world.cluster.run([&](Env& env) {
      if (env.node() != 0) return;
      const Time start = env.now();
      env.work(1000);
      took[slow] = env.now() - start;
    });
  }
  EXPECT_NEAR(static_cast<double>(took[1]), 32.0 * static_cast<double>(took[0]), 100);
}

TEST(NodeFaults, SlowWindowsOverlapAndTheSlowestCounts) {
  FaultyWorld world({});
  world.cluster.slow_down(0, 3, 30 * kMillisecond);
  world.cluster.slow_down(0, 5, 10 * kMillisecond);
  world.cluster.slow_down(0, 4, 20 * kMillisecond);
  std::array<Time, 4> took{};
  world.cluster.run([&](Env& env) {
    if (env.node() != 0) return;
    for (Time& each : took) {
      const Time start = env.now();
      env.work(1000);
      each = env.now() - start;
      env.sleep_until(start + 10 * kMillisecond + 100 * kMicrosecond);
    }
  });
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(static_cast<double>(took[i]), static_cast<double>((Time{32} >> i) * took[3]), 100)
        << "in window " << i;
}

TEST(NodeFaults, AFailedNicFlushesItsQueuePairsAndWorksAgainLater) {
  Pair pair({{"nic_failure", 1000},
             {"nic_failure.min_ns", 1e9},
             {"nic_failure.max_ns", 1e9},
             {"heal_at_ns", 3e6}});
  pair.wait(kMillisecond);
  EXPECT_EQ(pair.qa->state(), QpState::kError);
  EXPECT_EQ(pair.write(1).status, Status::kFlushed);
  pair.wait(3 * kMillisecond);
  auto q2 = pair.a.queue_pair(), p2 = pair.b.queue_pair();
  q2->connect(p2->address());
  p2->connect(q2->address());
  ASSERT_TRUE(q2->write(pair.a.memory->sge(0, 8), pair.b.memory->remote(), 0));
  EXPECT_EQ(pair.a.await_send().status, Status::kSuccess);
}

TEST(NodeFaults, NumbersOfTwoNicsCollide) {
  Pair pair({{"number_collision", 1}});
  EXPECT_EQ(pair.qa->qp_num(), pair.qb->qp_num());
  EXPECT_EQ(pair.a.memory->rkey(), pair.b.memory->rkey());
  EXPECT_EQ(pair.write(1).status, Status::kSuccess);
}

TEST(NodeFaults, AStalePacketOfAnEarlierIncarnationIsDropped) {
  FaultyWorld world({{"number_reuse", 1}});
  std::vector<std::uint32_t> numbers;
  Status status = Status::kGeneral;
  world.cluster.run([&](Env& env) {
    Side side(world, env.node());
    QpOptions qp_options;
    qp_options.timeout_us = 50;
    auto qp = side.queue_pair(qp_options);
    Rendezvous& r = side.device.rendezvous();
    auto later = side.queue_pair();  // on node 0: the queue pair for the next incarnation of node 1
    const std::string incarnation =
        std::to_string(env.node()) + "." + std::to_string(env.incarnation());
    r.publish_value("qp" + incarnation, qp->address());
    r.publish_value("mr" + incarnation, side.memory->remote());
    if (env.node() == 0) r.publish_value("qp0.1", later->address());
    if (env.node() == 1) {
      numbers.push_back(qp->qp_num());
      qp->connect(r.await_value<QpAddress>("qp0." + std::to_string(env.incarnation()), kForever));
      if (env.incarnation() == 0) env.poll_until([] { return false; }, kForever);
      env.sleep_until(env.now() + 2 * kMillisecond);
      EXPECT_EQ(side.load_word(0), 0u) << "a write of the old connection got through";
      return;
    }
    qp->connect(r.await_value<QpAddress>("qp1.0", kForever));
    const auto remote = r.await_value<RemoteRegion>("mr1.0", kForever);
    *side.word(0) = 1;
    world.cluster.expect_restart(1);
    world.cluster.kill(1);
    EXPECT_TRUE(qp->write(side.memory->sge(0, 8), remote, 0));
    world.cluster.restart(1);
    status = side.await_send().status;
  });
  ASSERT_EQ(numbers.size(), 2u);
  EXPECT_EQ(numbers[0], numbers[1]);
  EXPECT_EQ(status, Status::kRetryExceeded);
}

TEST(NodeFaults, ACrashTearsWhatItsNicWasSending) {
  int partial = 0;
  for (std::uint64_t round = 0; round < 60; ++round) {
    FaultyWorld world({{"torn_crash", 1}});
    constexpr std::uint32_t kBytes = 8192;
    world.cluster.run([&](Env& env) {
      Side side(world, env.node());
      auto qp = side.queue_pair();
      Rendezvous& r = side.device.rendezvous();
      r.publish_value("qp" + std::to_string(env.node()), qp->address());
      r.publish_value("mr" + std::to_string(env.node()), side.memory->remote());
      const std::string peer = std::to_string(1 - env.node());
      qp->connect(r.await_value<QpAddress>("qp" + peer, kForever));
      const auto remote = r.await_value<RemoteRegion>("mr" + peer, kForever);
      if (env.node() == 0) {
        side.fill(0, kBytes, 3);
        EXPECT_TRUE(qp->write(side.memory->sge(0, kBytes), remote, 0));
        env.sleep_until(env.now() + 700 + static_cast<Time>(round) * 10);
        world.cluster.kill(0);
      }
      env.sleep_until(env.now() + kMillisecond);
      bool any = false, all = true;
      for (std::size_t line = 0; line < kBytes; line += 64) {
        const bool there = side.load_word(line) != 0;
        any = any || there;
        all = all && there;
      }
      partial += any && !all;
    });
  }
  EXPECT_GT(partial, 3);
}

}  // namespace
}  // namespace pyrdma::fabric::sim
