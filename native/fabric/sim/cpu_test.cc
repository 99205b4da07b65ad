// The CPU of a simulated node: what a step, a copy and a walk cost, and what threads share.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error_test.h"
#include "env/scope.h"
#include "env/sim/node_memory.h"
#include "env/sync.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/endpoint_test.h"
#include "fabric/sim/profile_test.h"

namespace pyrdma::fabric::sim {
namespace {

using Changes = std::map<std::string, double>;

SimOptions one_node(const Changes& changes, std::uint32_t cores = 16) {
  auto values = test_profile_values();
  values.at("cpu.clock_read_ns") = 0;
  for (const auto& [key, value] : changes) values.at(key) = value;
  SimOptions options;
  options.nodes = 1;
  options.cores_per_node = cores;
  options.profile = SimProfile::from_values(values);
  return options;
}

/// Returns the nanoseconds that `work` takes.
double time_of(const std::function<void(Env&)>& work, const Changes& changes = {}) {
  SimCluster cluster(one_node(changes));
  double time = 0;
  cluster.run([&](Env& env) {
    const Time begin = env.now();
    work(env);
    time = static_cast<double>(env.now() - begin);
  });
  return time;
}

/// Returns the longest time of `threads` threads that do the same work.
double time_of_threads(std::uint32_t threads, const std::function<void(Env&)>& work,
                       const Changes& changes = {}) {
  SimCluster cluster(one_node(changes));
  Time longest = 0;
  cluster.run([&](Env& env) {
    std::vector<std::unique_ptr<Thread>> others;
    for (std::uint32_t i = 0; i < threads; ++i) {
      others.push_back(env.spawn("worker", [&] {
        const Time begin = env.now();
        work(env);
        longest = std::max(longest, env.now() - begin);
      }));
    }
    for (const auto& thread : others) thread->join();
  });
  return static_cast<double>(longest);
}

constexpr CpuScope kPlain{"test/plain", 10000};
constexpr CpuScope kFromNic{"test/nic", 0, 0, 0, 1000};
constexpr CpuScope kLines{"test/lines", 0, 100, 200, 300, 400, 500};

// Two threads on one core take twice the time; named cores are free to choose.
TEST(SimCpu, AThreadRunsOnTheCoreThatItsCreatorNames) {
  const auto time_on = [](std::uint32_t first, std::uint32_t second) {
    return time_of([&](Env& env) {
      const auto work = [&env] { env.work(100 * kMicrosecond); };
      const auto one = env.spawn("one", work, first), other = env.spawn("other", work, second);
      one->join();
      other->join();
    });
  };
  EXPECT_NEAR(time_on(5, 6), 100'000, 1000);
  EXPECT_GT(time_on(5, 5), 199'000);
  EXPECT_NEAR(time_on(Env::kNextCore, Env::kNextCore), 100'000, 1000);
  EXPECT_TRUE(
      refuses([&] { time_on(0, 16); }, ErrorCode::kInvalidArgument, {"16", "cores_per_node"}));
}

TEST(SimCpu, AStepCostsItsInstructionsAndItsLines) {
  // 10,000 instructions at 2 per cycle and 2.5 cycles per ns.
  EXPECT_NEAR(time_of([](Env& env) { const Scope step(env, kPlain); }), 2000, 1);
  EXPECT_NEAR(time_of([](Env& env) { const Scope step(env, kPlain); }, {{"cpu.clock_ghz", 5}}),
              1000, 1);
  const auto beside_another_thread = [](Env& env) {
    Event end(env);
    const std::unique_ptr<Thread> other = env.spawn("other", [&end] { end.wait(); });
    const Scope step(env, kLines);
    end.set();
  };
  EXPECT_NEAR(time_of(beside_another_thread), 100 * 4 + 200 * 15 + 300 * 20 + 400 * 40 + 500 * 80,
              10);
}

// The counts of lines come from runs with several threads.
TEST(SimCpu, ALineComesFromAnotherCoreOnlyIfAThreadRunsThere) {
  const double alone = 100 * 4 + 200 * 15 + 300 * 20 + 500 * 80;
  const auto step = [](Env& env) { const Scope step(env, kLines); };
  EXPECT_NEAR(time_of(step), alone, 10);
  EXPECT_NEAR(time_of([&](Env& env) {
                env.spawn("other", [] {})->join();
                step(env);
              }),
              alone, 1100);  // and the wait for the other thread
  const auto with_another = [&](std::uint32_t cores) {
    SimCluster cluster(one_node({{"cpu.context_switch_ns", 0}}, cores));
    Time taken = 0;
    cluster.run([&](Env& env) {
      Event end(env);
      const std::unique_ptr<Thread> other = env.spawn("other", [&end] { end.wait(); });
      const Time begin = env.now();
      step(env);
      taken = env.now() - begin;
      end.set();
    });
    return static_cast<double>(taken);
  };
  EXPECT_NEAR(with_another(1), alone, 10);
  EXPECT_NEAR(with_another(2), alone + 400 * 40, 10);
}

TEST(SimCpu, AStepInsideAnotherCostsItsOwnPartOnce) {
  EXPECT_NEAR(time_of([](Env& env) {
                const Scope outer(env, kPlain);
                const Scope inner(env, kPlain);
              }),
              4000, 1);
}

TEST(SimCpu, ACopyCostsByTheFootprintThatItWalks) {
  const auto copies = [](std::uint64_t footprint, std::size_t bytes, int count) {
    return time_of([=](Env& env) {
      const Footprint walked(env, nullptr, footprint);
      for (int i = 0; i < count; ++i) env.charge_copy(bytes, &walked);
    });
  };
  // One call or many: the bytes count.
  EXPECT_NEAR(copies(1 << 17, 16384, 64), copies(1 << 17, 1 << 20, 1), 2);
  EXPECT_NEAR(copies(1 << 17, 16385, 64), copies(1 << 17, 16384, 64), 5);
  // 20 GB/s in the second-level cache, 10 in the last, 5 in memory.
  EXPECT_NEAR(copies(1 << 17, 1 << 20, 1), (1 << 20) / 20.0, 100);
  EXPECT_NEAR(copies(10 << 20, 1 << 20, 1), (1 << 20) / 10.0, 2000);
  EXPECT_NEAR(copies(1 << 30, 1 << 20, 1), (1 << 20) / 5.0, 5000);
}

TEST(SimCpu, AWalkThroughALargeTableWaitsForMemory) {
  const auto walk = [](std::uint64_t table) {
    return time_of([table](Env& env) {
      const Footprint index(env, nullptr, table);
      for (int i = 0; i < 1000; ++i) env.charge_walk(index, &i);
    });
  };
  EXPECT_NEAR(walk(100'000), 4'000, 10);
  EXPECT_NEAR(walk(200'000'000), 74'000, 2'000);  // a tenth is in the last-level cache
}

TEST(SimCpu, FootprintsShareTheLastLevelCache) {
  const auto walk = [](std::uint64_t other) {
    return time_of([other](Env& env) {
      const Footprint index(env, nullptr, 10'000'000), neighbour(env, nullptr, other);
      for (int i = 0; i < 1000; ++i) env.charge_walk(index, &i);
    });
  };
  EXPECT_LT(walk(1'000'000), 16'000);
  EXPECT_GT(walk(90'000'000), 60'000);
}

TEST(SimCpu, APrefetchHidesWhatIsFetchedMeanwhile) {
  const auto walk = [](int steps_between) {
    return time_of([steps_between](Env& env) {
      const Footprint index(env, nullptr, 1 << 30);
      const int line = 0;
      env.prefetch(index, &line);
      for (int i = 0; i < steps_between; ++i) const Scope step(env, kPlain);
      env.charge_walk(index, &line);
    });
  };
  EXPECT_NEAR(walk(0), 80 + 4, 5);
  EXPECT_NEAR(walk(1), 2000 + 4, 2);
}

TEST(SimCpu, AProcessStartTakesItsTime) {
  EXPECT_EQ(time_of([](Env& env) { env.start_process(); }, {{"cpu.process_start_ns", 530'000}}),
            530'000);
}

TEST(SimCpu, MoreThreadsSaturateTheMemory) {
  const auto copy = [](Env& env) {
    const Footprint far(env, nullptr, 1ULL << 32);
    for (int i = 0; i < 100; ++i) {
      env.charge_copy(1 << 16, &far);
      env.now();
    }
  };
  // A core copies 5 GB/s, the memory gives 50.
  const double alone = time_of_threads(1, copy);
  EXPECT_NEAR(time_of_threads(8, copy) / alone, 1, 0.1);
  const double crowded = time_of_threads(15, copy);
  EXPECT_NEAR(crowded / alone, 1.5, 0.25);
  const auto chase = [](Env& env) {
    const Footprint far(env, nullptr, 1ULL << 32);
    for (int i = 0; i < 2000; ++i) {
      env.charge_walk(far, &i);
      env.now();
    }
  };
  // 4 GB/s. One thread takes a fifth, 14 at the loaded latency would take twice as much.
  const Changes narrow{{"cpu.memory_gbps", 32}};
  EXPECT_NEAR(time_of_threads(1, chase, narrow), 2000 * 88, 2000 * 4);
  EXPECT_NEAR(time_of_threads(14, chase, narrow), 2000 * 64 * 14 / 4.0, 2000 * 25);
}

TEST(SimCpu, TheNicsPartOfTheCacheKeepsTheNewestLines) {
  SimCpu cpu;
  cpu.nic = 20'000;
  cpu.memory = cpu.memory_loaded = 80'000;
  cpu.memory_byte = 1;
  cpu.memory_copy = 1;
  cpu.nic_llc_bytes = 1'000'000;
  const NodeMemory memory(cpu);
  EXPECT_EQ(memory.nic_line(0, 1'000'000, 0), 20'000);
  EXPECT_NEAR(memory.nic_line(0, 2'000'000, 0), 50'000, 100);
}

// Lines for requests of the node itself cost own_line_ns, those that a peer wrote nic_line_ns.
TEST(SimCpu, ALineFromTheNicCostsByWhoseRequestItWas) {
  const auto step_after = [](bool reads, NodeId looks) {
    SimCluster cluster(sim_options(2, {{"cpu.own_line_ns", 5}, {"cpu.clock_read_ns", 0}}));
    Time taken = 0;
    cluster.run([&](Env& env) {
      Endpoint end(env, 1 - env.node(), 4096);
      if (env.node() == 0) {
        const Sge sge = end.memory->sge(0, 64);
        if (reads)
          end.queue_pair->read(sge, end.remote, 0);
        else
          end.queue_pair->write(sge, end.remote, 0);
        end.next();
      }
      end.meet("done");
      if (env.node() != looks) return;
      const Time begin = env.now();
      const Scope step(env, kFromNic);
      taken = env.now() - begin;
    });
    return static_cast<double>(taken);
  };
  EXPECT_NEAR(step_after(true, 0), 5'000, 10);
  EXPECT_NEAR(step_after(false, 1), 20'000, 10);
}

TEST(SimCpu, ThreadsOfTheOtherSocketAreFartherFromTheNic) {
  const auto read = [](Env& env) { const Scope step(env, kFromNic); };
  EXPECT_NEAR(time_of_threads(15, read), 20'000, 100);
  EXPECT_NEAR(time_of_threads(15, read, {{"cpu.sockets", 2}}), 80'000, 100);
}

}  // namespace
}  // namespace pyrdma::fabric::sim
