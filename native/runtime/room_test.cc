// More requests than fit: callers wait for room, and a wait that fails says so.
#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"

namespace pyrdma::runtime {
namespace {

using fabric::Status;

using RuntimeRoom = RuntimeWorlds;

INSTANTIATE_TEST_SUITE_P(Worlds, RuntimeRoom, testing::ValuesIn(world_names()),
                         [](const auto& param) { return param.param; });

// Each thread also fences the requests of the other one, and so waits for the other's room.
TEST_P(RuntimeRoom, TwoThreadsWithMoreRequestsThanFitGoOn) {
  run(2, [&](Env& env, const Kill&) {
    Options wanted = options(2);
    wanted.max_in_flight = 64;
    Runtime runtime(env, wanted);
    runtime.connect();
    SharedWords words(runtime, "words", 2);
    const NodeId peer = 1 - env.node();
    const fabric::RemoteRegion there = words.at(peer);
    const auto body = [&](std::uint32_t i) {
      Caller& me = runtime.caller(i);
      const MemRef block = me.block(8);
      AckKey key;
      for (std::uint64_t n = 0; n < 400; ++n) {
        me.write(peer, there, 8 * i, block.sge(8), key);
        if (n % 50 == 49) {
          EXPECT_EQ(me.fence_global(), Status::kSuccess);
        }
      }
      EXPECT_EQ(key.wait(), Status::kSuccess);
    };
    {
      const auto second = runtime.spawn("second", [&] { body(1); });
      body(0);
    }
    runtime.leave();
  });
}

/// 70 long reads of node 1 by node 0, which has little patience and room for 64.
void read_too_much(Env& env, std::uint32_t callers, Polling polling) {
  constexpr std::uint32_t kBytes = 40 * kMiB;
  Options wanted;
  wanted.callers = callers;
  wanted.polling = polling;
  wanted.max_in_flight = 64;
  wanted.wait_timeout = kMillisecond;
  Runtime runtime(env, wanted);
  runtime.connect();
  SharedWords words(runtime, "words", kBytes / 8);
  const fabric::RemoteRegion there = words.at(1);
  node_barrier(env, "told");
  if (env.node() == 0) {
    const LocalRegion into = runtime.memory().allocate(kBytes);
    Caller& me = runtime.caller(0);
    AckKey key;
    try {
      for (int i = 0; i < 70; ++i) key.unite(me.read(1, there, 0, into.sge(0, kBytes)));
      ADD_FAILURE() << "no timeout";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_TRUE(names(error.what(), {"0", "1"}));  // node 0, after 1 ms
      EXPECT_TRUE(error.nodes().empty()) << "all nodes answer: " << error.what();
    }
    if (callers > 1) {
      EXPECT_EQ(runtime.caller(1).fence_thread(), Status::kSuccess);
    }
  }
  node_barrier(env, "end");
}

// In virtual time no machine is slow.
TEST(RuntimeRoomSim, AWaitForRoomEndsAndNamesNoNodeThatAnswers) {
  for (const Polling polling : {Polling::kCallers, Polling::kThread}) {
    for (const std::uint32_t callers : {1U, 2U}) {
      fabric::sim::SimCluster cluster(sim_options(3));
      cluster.run([&](Env& env) { read_too_much(env, callers, polling); });
    }
  }
}

/// The queue says that it is full after each request, until that request has completed.
fabric::sim::SimOptions often_full() {
  fabric::sim::SimOptions options = sim_options(2);
  options.faults = FaultOptions::from_values({{"queue_full", 1}});
  options.time_limit = 10 * kSecond;
  return options;
}

TEST(RuntimeRoomSim, AQueueThatIsOftenFullOnlyDelays) {
  fabric::sim::SimCluster cluster(often_full());
  cluster.run([&](Env& env) {
    Options wanted;
    wanted.callers = 2;
    Runtime runtime(env, wanted);
    runtime.connect();
    SharedWords words(runtime, "words", 1);
    Caller& me = runtime.caller(0);
    const MemRef block = me.block(8);
    AckKey key;
    const fabric::RemoteRegion there = words.at(1 - env.node());
    for (int i = 0; i < 50; ++i) key.unite(me.read(1 - env.node(), there, 0, block.sge(8)));
    EXPECT_EQ(key.wait(), Status::kSuccess);
    runtime.leave();
  });
  EXPECT_GT(cluster.fault_counters().reached[static_cast<std::size_t>(Fault::queue_full)], 0U);
}

// The request in flight never ends, because its packets are lost and its connection is patient.
TEST(RuntimeRoomSim, AConnectionWhoseQueueStaysFullEnds) {
  for (const std::uint32_t callers : {1U, 2U}) {
    fabric::sim::SimCluster cluster(often_full());
    cluster.run([&](Env& env) {
      Options wanted;
      wanted.callers = callers;
      wanted.timeout_us = 4'000'000;
      wanted.wait_timeout = 20 * kMillisecond;
      Runtime runtime(env, wanted);
      runtime.connect();
      SharedWords words(runtime, "words", 1);
      const fabric::RemoteRegion there = words.at(1);
      node_barrier(env, "told");
      if (env.node() == 0) {
        cluster.block(0, 1, kSecond);
        Caller& me = runtime.caller(0);
        MemRef block = me.block(8);
        AckKey first = me.read(1, there, 0, block.sge(8));
        AckKey second = me.read(1, there, 0, block.sge(8));
        EXPECT_EQ(first.wait(), Status::kFlushed);
        EXPECT_EQ(second.wait(), Status::kFlushed);
        EXPECT_FALSE(runtime.is_up(1));
        runtime.drain();
      }
      env.sleep_until(2 * kSecond);  // node 1 is there until the end
    });
  }
}

}  // namespace
}  // namespace pyrdma::runtime
