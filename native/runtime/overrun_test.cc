// A completion queue that has overrun gives nothing more. Every wait says so at once.
#include "runtime/overrun_test.h"

#include <tuple>

#include "runtime/node_barrier.h"

namespace pyrdma::runtime {
namespace {

TEST(RuntimeOverrunSim, EveryWaitNamesTheQueueThatHasOverrun) {
  for (const Polling polling : {Polling::kCallers, Polling::kThread}) {
    for (const std::uint32_t callers : {1U, 2U}) {
      fabric::sim::SimCluster cluster(overrunning(2));
      cluster.run([&](Env& env) {
        Options wanted;
        wanted.callers = callers;
        wanted.polling = polling;
        wanted.max_in_flight = 64;
        Runtime runtime(env, wanted);
        runtime.connect();
        SharedWords words(runtime, "words", 1);
        const fabric::RemoteRegion there = words.at(1);
        node_barrier(env, "told");
        if (env.node() == 1) return env.sleep_until(env.now() + kSecond);
        cluster.begin_faults();
        Caller& me = runtime.caller(0);
        const MemRef block = me.block(8);
        const Time begun = env.now();
        AckKey key = me.read(1, there, 0, block.sge(8));
        const auto fails = [&](auto&& wait) {
          EXPECT_TRUE(names_overrun(wait, 0, "runtime 'runtime'")) << "callers " << callers;
          EXPECT_TRUE(refuses(wait, ErrorCode::kUnavailable, {std::to_string(64 * callers)}));
        };
        fails([&] { key.wait(); });
        fails([&] { std::ignore = me.fence_thread(); });
        fails([&] { runtime.turn(); });
        fails([&] { runtime.drain(); });
        fails([&] {
          for (int i = 0; i < 70; ++i) me.read(1, there, 0, block.sge(8));
        });
        EXPECT_LT(env.now() - begun, kMillisecond);
      });
    }
  }
}

}  // namespace
}  // namespace pyrdma::runtime
