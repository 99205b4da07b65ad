#include "systems/krcore/baselines/lite.h"

#include <cstring>

#include "runtime/node_barrier.h"
#include "systems/krcore/control/stranger_test.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

class KrcoreLite : public KrcoreWorlds {
 protected:
  static void with_lite(const std::string& world, std::uint32_t nodes, const LiteOptions& options,
                        const std::function<void(Lite&, const fabric::MemoryRegion&)>& per_node) {
    runtime::run_world(world, nodes, [&](Env& env, const Kill&) {
      Lite lite(env, options);
      const auto memory = lite.allocate(4096);
      env.device().rendezvous().publish_value("memory/" + std::to_string(env.node()),
                                              memory->remote());
      per_node(lite, *memory);
      runtime::node_barrier(env, "done", 600 * kSecond);
    });
  }
  static fabric::RemoteRegion memory_of(Lite& lite, NodeId node) {
    return lite.env().device().rendezvous().await_value<fabric::RemoteRegion>(
        "memory/" + std::to_string(node), lite.env().now() + runtime::kSetupTimeout);
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, KrcoreLite, krcore_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(KrcoreLite, ThreadsShareConnections) {
  with_lite(GetParam(), 3, {}, [&](Lite& lite, const fabric::MemoryRegion& memory) {
    Env& env = lite.env();
    if (env.node() == 0) {
      const auto first = memory_of(lite, 1);
      EXPECT_EQ(lite.read(memory.sge(0, 8), first, 0), Status::kRetryExceeded) << "no connection";
      ASSERT_TRUE(lite.connect(1));
      ASSERT_TRUE(lite.connect(2));
      EXPECT_FALSE(lite.connect(3));
      EXPECT_EQ(lite.connections(), 8u);
      EXPECT_EQ(lite.memory(false), 8u * 159 * 1024);
      std::vector<std::unique_ptr<Thread>> threads;
      for (std::uint32_t thread = 0; thread < 4; ++thread) {
        threads.push_back(env.spawn("user/" + std::to_string(thread), [&, thread] {
          const auto own = lite.allocate(64);
          for (std::uint64_t i = 0; i < 50; ++i) {
            const auto there = memory_of(lite, 1 + i % 2);
            const std::uint64_t value = thread * 1000 + i;
            std::memcpy(own->data(), &value, sizeof value);
            ASSERT_EQ(lite.write(own->sge(0, 8), there, thread * 64), Status::kSuccess);
            ASSERT_EQ(lite.read(own->sge(8, 8), there, thread * 64), Status::kSuccess);
            std::uint64_t found = 0;
            std::memcpy(&found, own->data() + 8, sizeof found);
            ASSERT_EQ(found, value);
          }
        }));
      }
      for (const auto& thread : threads) thread->join();
      EXPECT_EQ(lite.failed_queue_pairs(), 0u);
    }
  });
}

TEST_P(KrcoreLite, PostsNowAndWaitsLater) {
  with_lite(GetParam(), 2, {}, [&](Lite& lite, const fabric::MemoryRegion& memory) {
    if (lite.env().node() != 0) return;
    const auto there = memory_of(lite, 1);
    ASSERT_TRUE(lite.connect(1));
    constexpr std::size_t kWindow = 200;  // four connections have room for 1,028
    const auto requests = std::make_unique<LiteRequest[]>(kWindow);
    for (int round = 0; round < 20; ++round) {
      for (std::size_t i = 0; i < kWindow; ++i)
        lite.post(Opcode::kRead, memory.sge(0, 64), there, 64, requests[i]);
      EXPECT_EQ(lite.wait(std::span(requests.get(), kWindow)), Status::kSuccess);
    }
    EXPECT_EQ(lite.failed_queue_pairs(), 0u);
    EXPECT_EQ(lite.first_failure(), 0);
  });
}

// Nobody counts what is under way (section 5.2): more than the queues hold breaks the queue pair,
// for other applications, too.
TEST_P(KrcoreLite, TooManyRequestsBreakTheSharedQueuePair) {
  LiteOptions options;
  options.connections_per_peer = 1;
  with_lite(GetParam(), 2, options, [&](Lite& lite, const fabric::MemoryRegion& memory) {
    if (lite.env().node() != 0) return;
    const auto there = memory_of(lite, 1);
    ASSERT_TRUE(lite.connect(1));
    // As many as the completion queue holds do no harm.
    const auto requests = std::make_unique<LiteRequest[]>(4096);
    for (std::uint32_t i = 0; i < options.completions; ++i)
      lite.post(Opcode::kRead, memory.sge(0, 64), there, 64, requests[i]);
    lite.env().sleep_until(lite.env().now() + kMillisecond);
    EXPECT_EQ(lite.wait(std::span(requests.get(), options.completions)), Status::kSuccess);
    for (std::uint32_t i = 0; i < 4096; ++i)
      lite.post(Opcode::kRead, memory.sge(0, 64), there, 64, requests[i]);
    EXPECT_EQ(lite.wait(std::span(requests.get(), 4096)), Status::kFlushed);
    EXPECT_EQ(lite.failed_queue_pairs(), 1u);
    EXPECT_GT(lite.first_failure(), 0);
    EXPECT_EQ(lite.read(memory.sge(0, 8), there, 0), Status::kFlushed);
  });
}

TEST_P(KrcoreLite, ACachedConnectionCostsTheSystemCallAlone) {
  if (!is_sim()) return;
  with_lite(GetParam(), 2, {}, [&](Lite& lite, const fabric::MemoryRegion&) {
    if (lite.env().node() != 0) return;
    ASSERT_TRUE(lite.connect(1));
    const Time begin = lite.env().now();
    ASSERT_TRUE(lite.connect(1));
    EXPECT_LT(lite.env().now() - begin, 5 * kMicrosecond);
    EXPECT_EQ(lite.connections(), 4u);
  });
}

// All nodes connect to all others at the same time.
TEST_P(KrcoreLite, NodesConnectToEachOtherAtOnce) {
  LiteOptions options;
  options.connections_per_peer = 2;
  with_lite(GetParam(), 3, options, [&](Lite& lite, const fabric::MemoryRegion& memory) {
    for (NodeId node = 0; node < 3; ++node) {
      if (node == lite.env().node()) continue;
      const auto there = memory_of(lite, node);
      ASSERT_TRUE(lite.connect(node));
      for (int i = 0; i < 8; ++i)
        EXPECT_EQ(lite.read(memory.sge(0, 8), there, 0), Status::kSuccess);
    }
    runtime::node_barrier(lite.env(), "read", 600 * kSecond);
  });
}

TEST_P(KrcoreLite, AManagerMakesOneConnectionAfterAnother) {
  LiteOptions options;
  options.control = LiteControl::kCentral;
  options.manager = 1;
  options.connections_per_peer = 1;
  options.manager_turn = 5 * kMillisecond;
  with_lite(GetParam(), 4, options, [&](Lite& lite, const fabric::MemoryRegion& memory) {
    if (lite.env().node() < 2) return;
    const auto there = memory_of(lite, 0);
    const Time begin = lite.env().now();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(lite.connect_anew(0));
    // Two nodes make three each.
    EXPECT_GT(lite.env().now() - begin, 25 * kMillisecond);
    EXPECT_EQ(lite.read(memory.sge(0, 8), there, 0), Status::kSuccess);
  });
}

// Lost, doubled and damaged datagrams delay connections, but make none too many at either end.
TEST(KrcoreLiteFaults, DatagramsOfTheControlPathMayBeLost) {
  for (const LiteControl control : {LiteControl::kDecentral, LiteControl::kCentral}) {
    fabric::sim::SimOptions options = runtime::sim_options(3);
    options.faults =
        FaultOptions::from_values({{"loss", 0.2}, {"duplicate", 0.2}, {"corruption", 0.1}});
    fabric::sim::SimCluster cluster(options);
    cluster.run([&](Env& env) {
      LiteOptions lite_options;
      lite_options.control = control;
      lite_options.manager = 1;
      lite_options.manager_turn = kMillisecond;
      Lite lite(env, lite_options);
      if (env.node() == 2) {
        for (int i = 0; i < 20; ++i) EXPECT_TRUE(lite.connect_anew(0));
        EXPECT_EQ(lite.connections(), 20u);
      }
      runtime::node_barrier(env, "made", 600 * kSecond);
      if (env.node() == 0) {
        EXPECT_EQ(lite.connections(), 20u);
      }
      runtime::node_barrier(env, "done", 600 * kSecond);
    });
  }
}

TEST(KrcoreLiteMemory, IsThePapers) {
  EXPECT_EQ(LiteMemory::kQueues, 147264u);
  // Section 2.3.2: 1.52 GB for 10,000 nodes. Section 5.2: 780 MB for 5,000, and 1.5 GB with message
  // queues.
  EXPECT_NEAR(static_cast<double>(LiteMemory::of(10000, false)) / (1 << 30), 1.52, 0.01);
  EXPECT_NEAR(static_cast<double>(LiteMemory::of(5000, false)) / (1 << 20), 780, 10);
  EXPECT_NEAR(static_cast<double>(LiteMemory::of(5000, true)) / 1e9, 1.5, 0.05);
}

// Offers of a node may name what does not exist, or be made in another node's name.
TEST(KrcoreLiteSim, ABadOfferEndsAlone) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  cluster.run([&](Env& env) {
    LiteOptions options;
    options.builders = 1;
    Lite lite(env, options);
    if (env.node() == 1) {
      Stranger stranger(env);
      for (const NodeId named : {1U, 2U}) {
        ControlMessage offer;
        offer.kind = ControlKind::kConnect;
        offer.from = offer.about = named;
        offer.ticket = 1;
        offer.port = offer.queue_pair = stranger.port();
        offer.queue_pair.lid = 77;  // no device
        offer.sum = sum_of(offer);
        stranger.send(env.device().rendezvous().await_value<fabric::QpAddress>(
                          options.name + "/lite/0", env.now() + kSecond),
                      std::as_bytes(std::span(&offer, 1)));
      }
    }
    runtime::node_barrier(env, "sent");
    if (env.node() == 2) {
      EXPECT_TRUE(lite.connect(0));
    }
    runtime::node_barrier(env, "done", 600 * kSecond);
    if (env.node() == 0) {
      EXPECT_EQ(lite.connections_to(1), 0u);
      EXPECT_EQ(lite.connections_to(2), options.connections_per_peer);
    }
  });
}

// A queue pair of a node that is not its LITE's makes no offer, however good it looks.
TEST(KrcoreLiteSim, AnotherQueuePairDoesNotSpeakForItsNode) {
  fabric::sim::SimCluster cluster(runtime::sim_options(2));
  cluster.run([&](Env& env) {
    LiteOptions options;
    options.builders = 1;
    Lite lite(env, options);
    if (env.node() == 1) {
      Stranger stranger(env);
      ControlMessage offer;
      offer.kind = ControlKind::kConnect;
      offer.from = offer.about = 1;
      offer.ticket = 1;
      offer.port = offer.queue_pair = stranger.port();
      offer.sum = sum_of(offer);
      EXPECT_TRUE(stranger.send(env.device().rendezvous().await_value<fabric::QpAddress>(
                                    options.name + "/lite/0", env.now() + kSecond),
                                std::as_bytes(std::span(&offer, 1))));
      env.sleep_until(env.now() + 100 * kMillisecond);
    }
    runtime::node_barrier(env, "sent");
    EXPECT_EQ(lite.connections(), 0u);
    runtime::node_barrier(env, "done");
  });
}

}  // namespace
}  // namespace pyrdma::krcore
