// Lists through the rendezvous, barriers of nodes, handshakes, meshes.
#include "runtime/mesh.h"

#include <atomic>
#include <numeric>

#include "base/error_test.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"

namespace pyrdma::runtime {
namespace {

INSTANTIATE_TEST_SUITE_P(Worlds, RuntimeWorlds, testing::ValuesIn(world_names()),
                         [](const auto& param) { return param.param; });

TEST_P(RuntimeWorlds, ListsOfAnyLengthArriveWhole) {
  run(2, [&](Env& env, const Kill&) {
    for (const std::size_t length : {0U, 1U, 126U, 127U, 128U, 254U, 255U, 256U, 2000U}) {
      std::vector<std::uint64_t> items(length);
      std::iota(items.begin(), items.end(), env.node() * 1000);
      const Exchange exchange(env, "list" + std::to_string(length), 1 - env.node());
      exchange.tell(items);
      const auto theirs = exchange.await<std::uint64_t>(env.now() + kSetupTimeout);
      std::iota(items.begin(), items.end(), (1 - env.node()) * 1000);
      EXPECT_EQ(theirs, items);
      EXPECT_EQ(exchange.find<std::uint64_t>(), theirs);
    }
  });
}

TEST_P(RuntimeWorlds, AListOfSomethingElseIsNamed) {
  run(1, [&](Env& env, const Kill&) {
    publish_list(env, "words", std::vector<std::uint64_t>{1, 2, 3});
    EXPECT_EQ(find_list<std::uint64_t>(env, "nothing"), std::nullopt);
    EXPECT_TRUE(refuses([&] { await_list<std::uint32_t>(env, "words", env.now() + kSecond); },
                        ErrorCode::kInvalidArgument, {"words", "32", "20"}));
  });
}

TEST_P(RuntimeWorlds, ANodeBarrierHoldsEverybody) {
  std::atomic<int> inside{0};
  run(3, [&](Env& env, const Kill&) {
    for (int round = 1; round <= 5; ++round) {
      inside.fetch_add(1);
      node_barrier(env, "round" + std::to_string(round));
      EXPECT_GE(inside.load(), 3 * round);
    }
    const std::vector<NodeId> some = {2, 0};
    if (env.node() != 1) node_barrier(env, "some", kSetupTimeout, some);
  });
}

TEST_P(RuntimeWorlds, ABarrierNamesTheNodesThatDoNotCome) {
  run(4, [&](Env& env, const Kill&) {
    if (env.node() % 2 == 0) {
      EXPECT_TRUE(refuses([&] { node_barrier(env, "half", 100 * kMillisecond); },
                          ErrorCode::kTimeout, {"100", "half", "1", "3"}));
      EXPECT_EQ(blamed_by([&] { node_barrier(env, "alone" + std::to_string(env.node()), 0); }),
                (env.node() == 0 ? std::vector<NodeId>{1, 2, 3} : std::vector<NodeId>{0, 1, 3}));
    }
    node_barrier(env, "end");
  });
}

TEST_P(RuntimeWorlds, AHandshakeGoesInSteps) {
  run(2, [&](Env& env, const Kill&) {
    fabric::Device& device = env.device();
    const NodeId peer = 1 - env.node();
    const auto pd = device.create_protection_domain();
    const auto completions = device.create_completion_queue(16);
    std::vector<std::unique_ptr<fabric::QueuePair>> qps;
    const auto handshake_with = [&](NodeId node, const char* name) {
      qps.push_back(device.create_queue_pair(*pd, *completions, *completions));
      Handshake handshake(env, name, node);
      handshake.add(*qps.back());
      return handshake;
    };
    Handshake handshake = handshake_with(peer, "pair");
    EXPECT_FALSE(handshake.find());
    node_barrier(env, "nothing is offered");
    handshake.offer();
    node_barrier(env, "both have offered");
    EXPECT_FALSE(Handshake(env, "another pair", peer).find());
    EXPECT_TRUE(handshake.find());
    EXPECT_EQ(handshake.offered(), 1U);
    EXPECT_NE(qps[0]->state(), fabric::QpState::kReadyToSend);
    handshake.connect();
    EXPECT_EQ(qps[0]->state(), fabric::QpState::kReadyToSend);

    Handshake own = handshake_with(env.node(), "pair");
    EXPECT_TRUE(own.find());
    own.connect();
    EXPECT_EQ(qps[1]->state(), fabric::QpState::kReadyToSend);
    EXPECT_EQ(incarnation_pair(env, 3 + env.node(), peer, 3 + peer), "3-4");
    node_barrier(env, "end");
  });
}

TEST_P(RuntimeWorlds, EveryQueuePairMeetsItsOwn) {
  run(3, [&](Env& env, const Kill&) {
    constexpr std::uint32_t kPairs = 3;
    fabric::Device& device = env.device();
    const auto pd = device.create_protection_domain();
    const auto completions = device.create_completion_queue(256);
    const auto memory = device.allocate(*pd, 4096);
    std::vector<std::unique_ptr<fabric::QueuePair>> qps;
    Mesh mesh(env, "mesh");
    // Queue pairs of equal number connect, in any order of nodes.
    for (std::uint32_t i = 0; i < kPairs; ++i) {
      for (NodeId k = 0; k < env.nodes(); ++k) {
        const NodeId peer = (k + env.node()) % env.nodes();
        qps.push_back(device.create_queue_pair(*pd, *completions, *completions));
        mesh.add(peer, *qps.back());
      }
    }
    mesh.connect(env.now() + kSetupTimeout);
    auto* words = reinterpret_cast<std::uint64_t*>(memory->data());
    for (std::uint64_t i = 0; i < qps.size(); ++i)
      ASSERT_TRUE(qps[i]->receive(memory->sge(8 * i, 8), i));
    mesh.meet(kSetupTimeout);
    for (std::uint32_t i = 0; i < qps.size(); ++i) {
      words[100 + i] = env.node() * 10 + i / env.nodes();
      ASSERT_TRUE(qps[i]->send(memory->sge(8 * (100 + i), 8), 100));
    }
    std::size_t left = 2 * qps.size();
    while (left > 0) {
      fabric::Completion completion;
      ASSERT_TRUE(env.poll_until(
          [&] {
            return completions->poll({&completion, 1}) == 1;
          },
          env.now() + kSetupTimeout));
      ASSERT_EQ(completion.status, fabric::Status::kSuccess);
      --left;
      if (completion.wr_id == 100) continue;
      const std::uint64_t i = completion.wr_id;
      const NodeId peer = static_cast<NodeId>((i + env.node()) % env.nodes());
      EXPECT_EQ(words[i], peer * 10 + i / env.nodes());
    }
    node_barrier(env, "end");
  });
}

// Set-up that waits in vain blames the nodes, not only a key of the rendezvous.
TEST_P(RuntimeWorlds, SetUpBlamesTheNodesThatDoNotCome) {
  run(4, [&](Env& env, const Kill&) {
    if (env.node() < 2) {
      fabric::Device& device = env.device();
      const auto pd = device.create_protection_domain();
      const auto completions = device.create_completion_queue(16);
      std::vector<std::unique_ptr<fabric::QueuePair>> qps;
      Mesh mesh(env, "mesh");
      for (NodeId peer = 0; peer < 4; ++peer) {
        qps.push_back(device.create_queue_pair(*pd, *completions, *completions));
        mesh.add(peer, *qps.back());
      }
      const auto connect = [&] { mesh.connect(env.now() + 100 * kMillisecond); };
      const auto blamed = blamed_by(connect);
      EXPECT_EQ(std::vector<NodeId>(blamed.end() - std::min<std::ptrdiff_t>(2, std::ssize(blamed)),
                                    blamed.end()),
                (std::vector<NodeId>{2, 3}));
      const Exchange exchange(env, "list", 3);
      const auto await = [&] { exchange.await<std::uint64_t>(env.now()); };
      EXPECT_TRUE(refuses(await, ErrorCode::kTimeout, {"3", "list"}));
      EXPECT_EQ(blamed_by(await), std::vector<NodeId>{3});
    }
    node_barrier(env, "end");
  });
}

TEST(RuntimeSetUpSim, ARuntimeBlamesTheNodesThatDoNotConnect) {
  fabric::sim::SimCluster cluster(sim_options(4));
  cluster.run([&](Env& env) {
    Options options;
    options.wait_timeout = 20 * kMillisecond;
    Runtime runtime(env, options);
    if (env.node() == 0 || env.node() == 2) {
      EXPECT_EQ(blamed_by([&] { runtime.connect(); }), (std::vector<NodeId>{1, 3}));
    }
    node_barrier(env, "end");
  });
}

TEST_P(RuntimeWorlds, AMeshOfOtherSizeIsNamed) {
  run(2, [&](Env& env, const Kill&) {
    fabric::Device& device = env.device();
    const auto pd = device.create_protection_domain();
    const auto completions = device.create_completion_queue(16);
    std::vector<std::unique_ptr<fabric::QueuePair>> qps;
    Mesh mesh(env, "mesh");
    for (NodeId i = 0; i <= env.node(); ++i) {
      qps.push_back(device.create_queue_pair(*pd, *completions, *completions));
      mesh.add(1 - env.node(), *qps.back());
    }
    const std::string peer = std::to_string(1 - env.node());
    EXPECT_TRUE(refuses([&] { mesh.connect(env.now() + kSetupTimeout); },
                        ErrorCode::kInvalidArgument, {peer, "1", "2"}));
  });
}

}  // namespace
}  // namespace pyrdma::runtime
