// Peers that die while the others go on, and peers that come back.
#include <atomic>
#include <cstdlib>
#include <sstream>

#include "base/remote_word.h"
#include "fabric/shm/process_test.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"

namespace pyrdma::runtime {
namespace {

using fabric::Status;

using DeadPeers = RuntimeWorlds;

INSTANTIATE_TEST_SUITE_P(Worlds, DeadPeers, testing::ValuesIn(world_names()),
                         [](const auto& param) { return param.param; });

/// Adds one to `word` and returns the status of the request.
Status add_one(Caller& me, NodeId peer, const fabric::RemoteRegion& word,
               NodeId* failed = nullptr) {
  MemRef old = me.block(8);
  AckKey key = me.fetch_add(peer, word, 0, 1, old.sge(8));
  const Status status = key.wait();
  if (failed != nullptr) *failed = key.failed_peer();
  return status;
}

/// Adds one to `word` until a request fails, for 20 s at most; returns the peer that the key names.
NodeId add_until_failure(Caller& me, NodeId peer, const fabric::RemoteRegion& word) {
  const Time deadline = me.env().now() + kSetupTimeout;
  NodeId failed = fabric::kNoNode;
  while (add_one(me, peer, word, &failed) == Status::kSuccess && me.env().now() < deadline) {
  }
  return failed;
}

TEST_P(DeadPeers, TheOthersGoOn) {
  const std::vector<NodeId> survivors = {0, 1, 3};
  run(4, [&](Env& env, const Kill& kill) {
    Runtime runtime(env, options(2));
    runtime.connect();
    SharedWords words(runtime, "words", 8);
    std::vector<fabric::RemoteRegion> at;
    for (NodeId node = 0; node < 4; ++node) at.push_back(words.at(node));
    Caller& me = runtime.caller(0);
    for (NodeId node = 0; node < 4; ++node)
      EXPECT_EQ(add_one(me, node, at[node]), Status::kSuccess);
    node_barrier(env, "before");
    if (env.node() == 2) {
      kill(2);
      env.sleep_until(kForever);
    }
    EXPECT_EQ(runtime.down_peers(), "");
    EXPECT_EQ(add_until_failure(me, 2, at[2]), 2U);
    EXPECT_FALSE(runtime.is_up(2));
    EXPECT_EQ(runtime.why_down(2), Status::kRetryExceeded);
    EXPECT_EQ(runtime.down_peers(), " 2");
    // Requests of every caller end at once, without the retries of their own connections.
    const Time begin = env.now();
    Caller& other = runtime.caller(1);
    NodeId failed = fabric::kNoNode;
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(add_one(i % 2 == 0 ? other : me, 2, at[2], &failed), Status::kRetryExceeded);
      EXPECT_EQ(failed, 2U);
    }
    // In real time 100 such retries would take less than a busy machine's pauses.
    if (GetParam().starts_with("sim")) {
      EXPECT_LT(env.now() - begin, kMillisecond);
    }
    // A fence reports once the unfenced requests to the dead peer; it fences all other peers.
    MemRef block = me.block(8);
    me.write(2, at[2], 0, block.sge(8));
    EXPECT_EQ(me.fence_thread(), Status::kRetryExceeded);
    EXPECT_EQ(me.fence_thread(), Status::kSuccess);
    for (int i = 0; i < 50; ++i) {
      for (const NodeId node : survivors) {
        EXPECT_EQ(add_one(me, node, at[node]), Status::kSuccess);
        EXPECT_EQ(add_one(other, node, at[node]), Status::kSuccess);
      }
    }
    EXPECT_EQ(me.silent_peers(), std::vector<NodeId>{2});
    node_barrier(env, "after", kSetupTimeout, survivors);
    EXPECT_EQ(load_acquire(words.local()), 4U + 3 * 100);
    EXPECT_EQ(runtime.down_peers(), " 2");
    runtime.drain();
    node_barrier(env, "end", kSetupTimeout, survivors);
  });
}

TEST_P(DeadPeers, RequestsInFlightToADeclaredPeerEnd) {
  run(3, [&](Env& env, const Kill&) {
    Options wanted = options(2);
    wanted.timeout_us = 2'000'000;  // without help the connection notices the death late
    wanted.message_entries = 4;
    Runtime runtime(env, wanted);
    class Deaths final : public Service {
     public:
      void peer_down(NodeId peer, Status why) override {
        EXPECT_EQ(peer, 2U);
        EXPECT_EQ(why, Status::kRetryExceeded);
        count.fetch_add(1);
      }
      std::atomic<int> count{0};
    } deaths;
    runtime.connect(&deaths);
    SharedWords words(runtime, "words", 8);
    std::vector<fabric::RemoteRegion> at;
    for (NodeId node = 0; node < 3; ++node) at.push_back(words.at(node));
    node_barrier(env, "told");
    if (env.node() == 0) {
      Caller& me = runtime.caller(0);
      runtime.declare_down(2);
      runtime.declare_down(2, Status::kGeneral);  // the peer is known to be down
      EXPECT_EQ(deaths.count.load(), 1);
      EXPECT_EQ(runtime.messages(2).qp->state(), fabric::QpState::kError);
      NodeId failed = fabric::kNoNode;
      EXPECT_EQ(add_one(me, 2, at[2], &failed), Status::kRetryExceeded);
      EXPECT_EQ(failed, 2U);
      EXPECT_EQ(add_one(me, 1, at[1]), Status::kSuccess);
      EXPECT_EQ(add_one(runtime.caller(1), 2, at[2]), Status::kRetryExceeded);
    }
    node_barrier(env, "end");
    runtime.stop();
  });
}

// Both ends break the connection and make a new one, several times. The third node notices nothing.
TEST_P(DeadPeers, AConnectionIsMadeAgain) {
  run(3, [&](Env& env, const Kill&) {
    Runtime runtime(env, options(2));
    runtime.connect();
    SharedWords words(runtime, "words", 8);
    std::vector<fabric::RemoteRegion> at;
    for (NodeId node = 0; node < 3; ++node) at.push_back(words.at(node));
    for (int round = 0; round < 4; ++round) {
      node_barrier(env, "round" + std::to_string(round));
      Caller& me = runtime.caller(0);
      if (env.node() != 2) {
        const NodeId peer = 1 - env.node();
        runtime.declare_down(peer);
        for (int i = 0; i < 300; ++i)  // more than the queues hold
          EXPECT_EQ(add_one(me, peer, at[peer]), Status::kRetryExceeded);
        AckKey pending;  // still in flight when the connection is made again
        MemRef block = me.block(8);
        for (int i = 0; i < 20; ++i) me.write(peer, at[peer], 8, block.sge(8), pending);
        ASSERT_TRUE(runtime.reconnect(peer, env.now() + kSetupTimeout));
        EXPECT_TRUE(runtime.is_up(peer));
        EXPECT_EQ(pending.wait(), Status::kRetryExceeded);
      }
      for (int i = 0; i < 300; ++i) {
        const NodeId peer = static_cast<NodeId>(i % 3);
        EXPECT_EQ(add_one(i % 2 == 0 ? me : runtime.caller(1), peer, at[peer]), Status::kSuccess);
      }
      // A fence reports the lost requests once, though the connection is there again.
      EXPECT_EQ(runtime.caller(1).fence_global(),
                env.node() == 2 ? Status::kSuccess : Status::kRetryExceeded);
      EXPECT_EQ(runtime.caller(1).fence_global(), Status::kSuccess);
    }
    runtime.leave();
    EXPECT_EQ(load_acquire(words.local()), 4U * 3 * 100);
  });
}

TEST_P(DeadPeers, APeerThatDoesNotComeBackIsWaitedForUntilTheDeadline) {
  run(2, [&](Env& env, const Kill&) {
    Runtime runtime(env, options());
    runtime.connect();
    if (env.node() == 0) {
      runtime.declare_down(1);
      const Time begin = env.now();
      EXPECT_FALSE(runtime.reconnect(1, begin + 20 * kMillisecond));
      EXPECT_GE(env.now(), begin + 20 * kMillisecond);
      EXPECT_FALSE(runtime.is_up(1));
    }
    node_barrier(env, "end");
  });
}

// Node 2 is killed and started again, twice. Its peers connect with each of its incarnations, and
// go on meanwhile.
TEST(DeadPeersRestart, ARestartedPeerIsMetAgain) {
  for (const Polling polling : {Polling::kCallers, Polling::kThread}) {
    fabric::sim::SimCluster cluster(sim_options(3));
    std::uint32_t incarnations = 0;
    cluster.run([&](Env& env) {
      Options wanted;
      wanted.callers = 2;
      wanted.timeout_us = 64;
      wanted.polling = polling;
      Runtime runtime(env, wanted);
      runtime.connect();
      Caller& me = runtime.caller(0);
      EXPECT_EQ(runtime.is_restarted(), env.incarnation() != 0);
      const auto words_of = [&](std::uint32_t incarnation) {
        return "words" + std::to_string(incarnation);
      };
      if (env.node() == 2) {
        ++incarnations;
        EXPECT_EQ(runtime.down_peers(), env.incarnation() == 0 ? "" : " 0 1");
        const SharedWords own(runtime, words_of(env.incarnation()), 1);
        for (const NodeId peer : {0U, 1U})
          ASSERT_TRUE(runtime.reconnect(peer, env.now() + kSecond));
        const bool last = env.incarnation() == 2;
        const auto both = [&] { return load_acquire(own.local()) >= (last ? 20U : 10U); };
        me.wait_until(both, "the others");
        if (!last) {
          cluster.expect_restart(2);
          cluster.kill(2);
          env.sleep_until(kForever);
        }
        node_barrier(env, "end");
        return;
      }
      SharedWords own(runtime, "word of " + std::to_string(env.node()), 1);
      const NodeId other = 1 - env.node();
      const auto neighbour = await_list<fabric::RemoteRegion>(
          env, "word of " + std::to_string(other) + '/' + std::to_string(other),
          env.now() + kSecond);
      for (std::uint32_t incarnation = 0; incarnation < 3; ++incarnation) {
        const auto word = await_list<fabric::RemoteRegion>(env, words_of(incarnation) + "/2",
                                                           env.now() + kSecond);
        for (int i = 0; i < 10; ++i) {
          const Status status = add_one(me, 2, word[0]);
          EXPECT_TRUE(incarnation == 2 ? status == Status::kSuccess : true);
        }
        if (incarnation == 2) break;
        EXPECT_EQ(add_until_failure(me, 2, word[0]), 2U);
        EXPECT_EQ(add_one(me, other, neighbour[0]), Status::kSuccess);
        cluster.restart(2);
        ASSERT_TRUE(runtime.reconnect(2, env.now() + kSecond));
        EXPECT_EQ(add_one(me, other, neighbour[0]), Status::kSuccess);
      }
      node_barrier(env, "end");
    });
    EXPECT_EQ(incarnations, 3U);
    fabric::expect_same_run(cluster.fingerprint());
  }
}

/// An incarnation of node 1, in a process of its own, until it is killed.
TEST(DeadPeersChild, DISABLED_Incarnation) {
  const char* role = std::getenv(fabric::shm::kRole);
  ASSERT_NE(role, nullptr);
  std::istringstream words(role);
  std::string incarnation, session, token;
  words >> incarnation >> session >> token;
  fabric::shm::ShmNode node(session, 1, 2, token);
  Env& env = node.env();
  Runtime runtime(env, Options());
  runtime.connect();
  ASSERT_EQ(runtime.is_restarted(), incarnation != "0");
  const SharedWords own(runtime, "incarnation" + incarnation, 1);
  ASSERT_TRUE(runtime.reconnect(0, env.now() + kSetupTimeout));
  env.sleep_until(kForever);
}

TEST(DeadPeersRestart, AKilledProcessIsMetAgain) {
  const fabric::shm::Session session({2, 1});
  fabric::shm::ShmNode self(session.name(), 0, 2, session.token());
  Env& env = self.env();
  std::unique_ptr<Runtime> runtime;
  for (int incarnation = 0; incarnation < 3; ++incarnation) {
    const std::string name = std::to_string(incarnation);
    fabric::shm::Child child(fabric::shm::role(name, session, 1),
                             "DeadPeersChild.DISABLED_Incarnation");
    if (incarnation == 0) {
      runtime = std::make_unique<Runtime>(env, Options());
      runtime->connect();
    }
    ASSERT_TRUE(runtime->reconnect(1, env.now() + kSetupTimeout));
    const auto word = await_list<fabric::RemoteRegion>(env, "incarnation" + name + "/1",
                                                       env.now() + kSetupTimeout);
    Caller& me = runtime->caller(0);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(add_one(me, 1, word[0]), Status::kSuccess);
    child.kill();
    EXPECT_EQ(add_until_failure(me, 1, word[0]), 1U);
    EXPECT_EQ(runtime->why_down(1), Status::kRetryExceeded);
    ASSERT_TRUE(
        env.poll_until([&] { return !session.dead_nodes().empty(); }, env.now() + kSetupTimeout));
  }
}

}  // namespace
}  // namespace pyrdma::runtime
