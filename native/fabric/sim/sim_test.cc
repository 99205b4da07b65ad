// These tests cover properties that only the simulated fabric has: determinism, virtual time,
// congestion, control-path time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>

#include "base/error_test.h"
#include "env/sim/fiber.h"
#include "env/trace.h"
#include "fabric/contract_worlds_test.h"
#include "fabric/sim/endpoint_test.h"

namespace pyrdma::fabric::sim {
namespace {

std::uint64_t random_traffic(std::uint64_t seed) {
  SimCluster cluster(sim_options(6, {{"link.lossless", 0}, {"switch.buffer_bytes", 20000}}, seed));
  cluster.run([](Env& env) {
    const NodeId peer = env.node() ^ 1;
    Endpoint end(env, peer, 1 << 16);
    Rng rng = env.rng("traffic");
    for (int i = 0; i < 300; ++i) {
      const auto size = static_cast<std::uint32_t>(rng.below(20000));
      if (rng.below(2) == 0)
        end.queue_pair->write(end.memory->sge(0, size), end.remote, 0);
      else
        end.queue_pair->read(end.memory->sge(0, size), end.remote, 0);
      if (rng.below(3) > 0) {
        EXPECT_EQ(end.next().status, Status::kSuccess);
      }
      env.work(static_cast<Time>(rng.below(2000)));
    }
    env.sleep_until(env.now() + kMillisecond);
    end.meet("end");
  });
  return cluster.fingerprint();
}

TEST(Simulation, EqualSeedsGiveEqualRuns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::uint64_t first = random_traffic(seed);
    EXPECT_EQ(first, random_traffic(seed)) << "seed " << seed;
    EXPECT_NE(first, random_traffic(seed + 1000)) << "the fingerprint must tell runs apart";
  }
}

// fabric/sim/README.md gives the sum. The numbers are those of the test profile.
TEST(Simulation, LatencyOfAReadIsTheSumOfItsSteps) {
  SimCluster cluster(sim_options(2));
  double latency = 0;
  cluster.run([&](Env& env) {
    Endpoint end(env, 1 - env.node(), 4096);
    if (env.node() == 0) {
      const Time start = env.now();
      end.queue_pair->read(end.memory->sge(0, 8), end.remote, 0);
      end.next();
      latency = static_cast<double>(env.now() - start);
    }
    end.meet("end");
  });
  const double wire = 60 * 0.08 + 68 * 0.08;        // request and response at 100 Gb/s
  const double path = 2 * (20 + 150 + 20);          // cable, switch, cable, both ways
  const double requester = 50 + 15 + 150 + 7 + 50;  // post, request, doorbell, engine, pipeline
  const double responder = 50 + 7 + 400;            // pipeline, engine, payload over PCIe
  const double completion = 50 + 5 + 200 + 20 + 8;  // pipeline, engine, write, poll, clock
  const double packets = 4 * 5;                     // each of two packets leaves and comes in
  EXPECT_NEAR(latency, wire + path + requester + responder + completion + packets, 11)
      << "the sum must hold within one empty poll and rounding";
}

double goodput_gbps(std::map<std::string, double> changes, std::uint32_t size, int senders,
                    NicCounters* at_target) {
  SimCluster cluster(sim_options(static_cast<std::uint32_t>(senders) + 1, changes));
  const int count = 200;
  Time begin = kForever, end_time = 0;
  cluster.run([&](Env& env) {
    const auto body = [&](NodeId peer, bool sends) {
      Endpoint end(env, peer, 1 << 20);
      if (sends) {
        begin = std::min(begin, env.now());
        for (int i = 0; i < count; ++i)
          end.queue_pair->write(end.memory->sge(0, size), end.remote, 0, 0,
                                i + 1 == count ? kSignaled : 0);
        EXPECT_EQ(end.next().status, Status::kSuccess);
        end_time = std::max(end_time, env.now());
      }
      end.meet("end");
    };
    if (env.node() > 0) return body(0, true);
    std::vector<std::unique_ptr<Thread>> threads;
    for (int s = 1; s <= senders; ++s)
      threads.push_back(env.spawn("target", [&body, s] { body(static_cast<NodeId>(s), false); }));
    for (auto& thread : threads) thread->join();
  });
  if (at_target != nullptr) {
    *at_target = cluster.counters(0);
    for (int s = 1; s <= senders; ++s)
      at_target->paused += cluster.counters(static_cast<NodeId>(s)).paused;
  }
  return 8.0 * size * count * senders / static_cast<double>(end_time - begin);
}

TEST(Simulation, LongWritesFillTheLink) {
  const double header_share = 4096.0 / (4096 + 60);
  EXPECT_NEAR(goodput_gbps({}, 65536, 1, nullptr), 100 * header_share, 2);
  EXPECT_NEAR(goodput_gbps({}, 65536, 4, nullptr), 100 * header_share, 2)
      << "the senders of an incast share one link";
}

TEST(Simulation, ALossySwitchDropsAndTheConnectionRecovers) {
  NicCounters counters;
  const double gbps =
      goodput_gbps({{"link.lossless", 0}, {"switch.buffer_bytes", 100000}}, 32768, 4, &counters);
  EXPECT_GT(counters.dropped, 0u);
  EXPECT_GT(gbps, 1);
}

TEST(Simulation, ALosslessSwitchPausesInsteadOfDropping) {
  NicCounters counters;
  goodput_gbps({{"switch.pfc_xoff_bytes", 50000}, {"switch.ecn_threshold_bytes", 20000}}, 32768, 4,
               &counters);
  EXPECT_EQ(counters.dropped, 0u);
  EXPECT_GT(counters.ecn_marked, 0u);
  EXPECT_GT(counters.paused, 0u);
}

TEST(Simulation, ThreadsShareCores) {
  for (const std::uint32_t cores : {1u, 2u}) {
    SimOptions wanted = sim_options(1);
    wanted.cores_per_node = cores;
    SimCluster cluster(wanted);
    Time took = 0;

    cluster.run([&](Env& env) {
      auto thread = env.spawn("worker", [&env] { env.work(10 * kMillisecond); });
      env.work(10 * kMillisecond);
      thread->join();
      took = env.now();
    });
    EXPECT_NEAR(static_cast<double>(took), cores == 1 ? 20e6 : 10e6, 0.2e6) << cores << " cores";
  }
}

TEST(Simulation, AKilledNodeEndsAndItsPeersGoOn) {
  SimCluster cluster(sim_options(2));
  Status status = Status::kSuccess;
  cluster.run([&](Env& env) {
    Endpoint end(env, 1 - env.node(), 4096);
    if (env.node() == 1) {
      env.poll_until([] { return false; }, kForever);
      ADD_FAILURE() << "a killed node went on";
    }
    env.sleep_until(env.now() + kMillisecond);
    cluster.kill(1);
    end.queue_pair->write(end.memory->sge(0, 8), end.remote, 0);
    status = end.next().status;
  });
  EXPECT_EQ(status, Status::kRetryExceeded);
}

// The killer is ahead of virtual time, and the first thread of the node is due before the kill. It
// owns what the second one uses, so it unwinds last all the same.
// An interpreter's stack is that of the caller. Its code reads the clock, charges and posts, but
// waits nowhere.
TEST(Simulation, AThreadRunsAPartOfItOnTheStackOfTheCaller) {
  SimCluster cluster(sim_options(2));
  const auto depth = [] { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); };
  const std::uintptr_t caller = depth();
  const auto distance = [&] {
    const std::uintptr_t here = depth();
    return std::max(here, caller) - std::min(here, caller);
  };
  int turns = 0;
  cluster.run([&](Env& env) {
    EXPECT_GT(distance(), Fiber::kStackBytes) << "this is no fiber";
    for (int i = 0; i < 100; ++i) {
      const Time before = env.now();
      cluster.on_caller_stack([&] {
        EXPECT_LT(distance(), Fiber::kStackBytes);
        env.work(10);
        EXPECT_GE(env.now(), before + 10);
        EXPECT_TRUE(
            refuses([&] { env.sleep_until(before + kMillisecond); }, ErrorCode::kInvalidArgument));
        EXPECT_TRUE(refuses([&] { env.poll_until([] { return false; }, kForever); },
                            ErrorCode::kInvalidArgument));
        EXPECT_FALSE(env.poll_until([] { return false; }, before));
        ++turns;
      });
      EXPECT_GE(env.now(), before + 10);
      EXPECT_LT(env.now(), before + kMicrosecond) << "a refused wait left a wake behind";
      env.sleep_until(env.now() + 100);
    }
  });
  EXPECT_EQ(turns, 200);
}

TEST(Simulation, ANodeMayEndItselfInAPartOnTheStackOfTheCaller) {
  SimCluster cluster(sim_options(2));
  bool went_on = false;
  cluster.run([&](Env& env) {
    if (env.node() == 0) return env.sleep_until(kMillisecond);
    cluster.on_caller_stack([&] { cluster.kill(1); });
    env.sleep_until(env.now() + 1);
    went_on = true;
  });
  EXPECT_FALSE(went_on);
}

TEST(Simulation, ARunInsideARunIsRefused) {
  SimCluster cluster(sim_options(1));
  cluster.run([&](Env&) {
    EXPECT_TRUE(refuses([&] { cluster.run([](Env&) {}); }, ErrorCode::kInvalidArgument));
  });
  cluster.run([](Env&) {});
}

TEST(Simulation, ThreadsOfAKilledNodeUnwindBeforeThoseThatSpawnedThem) {
  SimCluster cluster(sim_options(2));
  bool has_ended = false;
  struct AtEnd {
    std::function<void()> act;
    ~AtEnd() { act(); }
  };
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      const AtEnd last{[&] { EXPECT_TRUE(has_ended); }};
      const auto thread = env.spawn("second", [&] {
        const AtEnd first{[&] { has_ended = true; }};
        env.poll_until([] { return false; }, kForever);
      });
      env.poll_until([] { return false; }, 50 * kMicrosecond);
      ADD_FAILURE() << "a killed node went on";
    }
    env.sleep_until(20 * kMicrosecond);
    env.charge(Cost::kClockRead, 100'000);
    cluster.kill(1);
  });
  EXPECT_TRUE(has_ended);
}

TEST(Simulation, APollerSeesWhatHappensDuringItsTurn) {
  SimCluster cluster(sim_options(2));
  cluster.run([](Env& env) {
    Endpoint end(env, 1 - env.node(), 4096);
    end.queue_pair->modify(QpState::kError);
    // The NIC flushes the post at once. The completion is there before the thread waits for it.
    bool posted = false;
    Completion completion;
    const bool came = env.poll_until(
        [&] {
          if (end.completions->poll({&completion, 1}) == 1) return true;
          if (!posted) posted = end.queue_pair->write(end.memory->sge(0, 8), end.remote, 0);
          return false;
        },
        env.now() + kSecond, &end.completions->watch());
    EXPECT_TRUE(came);
    EXPECT_LT(env.now(), kSecond / 2);
    EXPECT_EQ(completion.status, Status::kFlushed);
  });
}

TEST(Simulation, ErrorsEndTheRun) {
  SimCluster cluster(sim_options(3));
  const auto message = [&](FunctionRef<void(Env&)> body) {
    try {
      cluster.run(body);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_TRUE(
      names(message([](Env& env) { env.poll_until([] { return false; }, kForever); }), {"node2"}))
      << "the error of a deadlock must name the waiting nodes";
  EXPECT_EQ(message([](Env& env) {
              if (env.node() == 1) throw Error(ErrorCode::kInternal, "on purpose");
              env.poll_until([] { return false; }, kForever);
            }),
            "on purpose");
  cluster.request_stop();
  EXPECT_NE(message([](Env& env) {
              for (;;) env.sleep_until(env.now() + 1);
            }),
            "no error");
  EXPECT_EQ(message([](Env& env) { env.work(5); }), "no error")
      << "the cluster must be usable after an error";
}

TEST(Simulation, AnIdleNodeIsSmall) {
  const auto resident = [] {
    long pages = 0, ignored = 0;
    FILE* file = std::fopen("/proc/self/statm", "r");
    EXPECT_EQ(std::fscanf(file, "%ld %ld", &ignored, &pages), 2);
    std::fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
  };
  const long before = resident();
  SimCluster cluster(sim_options(500));
  long during = 0;
  cluster.run([&](Env& env) {
    env.sleep_until(kMicrosecond);
    if (env.node() == 0) during = resident();
  });
  EXPECT_LT((during - before) / 500, 128 * 1024) << "bytes per node";
}

TEST(Simulation, ProfilesAreChecked) {
  auto values = test_profile_values();
  values["link.rate_gbps"] = -1;
  EXPECT_TRUE(refuses([&] { SimProfile::from_values(values); }, ErrorCode::kInvalidArgument,
                      {"link.rate_gbps", "-1", "Gbps"}));
  values = test_profile_values();
  values.erase("cpu.post_ns");
  EXPECT_THROW(SimProfile::from_values(values), Error);
  values = test_profile_values();
  values["link.colour"] = 1;
  EXPECT_THROW(SimProfile::from_values(values), Error);
}

// The trace is the complete effect of a small program. A change may alter the trace only on
// purpose.
TEST(Simulation, GoldenTraceOfAWriteAReadAndAMissingReceive) {
  SimCluster cluster(sim_options(2));
  for (NodeId node = 0; node < 2; ++node) cluster.env(node).trace().enable(true);
  cluster.run([&](Env& env) {
    Endpoint end(env, 1 - env.node(), 1 << 16);
    if (env.node() == 0) {
      end.queue_pair->write(end.memory->sge(0, 20000), end.remote, 0, 1);
      end.queue_pair->read(end.memory->sge(0, 8), end.remote, 0, 2);
      end.queue_pair->send(end.memory->sge(0, 64), 3);
      for (int i = 0; i < 3; ++i) end.next();
    } else {
      env.sleep_until(env.now() + 15 * kMicrosecond);
      end.queue_pair->receive(end.memory->sge(0, 64));
    }
    end.meet("end");
  });
  std::string text = "\n";
  for (const std::string& line : cluster.trace()) text += line + "\n";
  EXPECT_EQ(text, R"(
45232 ns  node 0  sends  write 0, 20000 bytes
45232 ns  node 0  sends  write 0, 20000 bytes from 16384
45297 ns  node 0  sends  read 1, 8 bytes
45362 ns  node 0  sends  send 2, 64 bytes
47470 ns  node 1  executes  write 0, 20000 bytes
47757 ns  node 1  executes  write 0, 20000 bytes from 16384
47972 ns  node 1  executes  read 1, 8 bytes
47972 ns  node 1  is not ready for  send 2, 64 bytes
48022 ns  node 0  completes  write 0, 20000 bytes from 16384
48438 ns  node 0  completes  read 1, 8 bytes
48438 ns  node 0  waits for  send 2, 64 bytes
58445 ns  node 0  sends  send 2, 64 bytes
59369 ns  node 1  is not ready for  send 2, 64 bytes
59629 ns  node 0  waits for  send 2, 64 bytes
69636 ns  node 0  sends  send 2, 64 bytes
70954 ns  node 1  executes  send 2, 64 bytes
71220 ns  node 0  completes  send 2, 64 bytes
)");
}

}  // namespace
}  // namespace pyrdma::fabric::sim
