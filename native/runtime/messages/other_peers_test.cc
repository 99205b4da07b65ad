// What one peer of an inbox, or a stranger, does to the others: nothing.
#include <deque>
#include <optional>

#include "base/error_test.h"
#include "runtime/messages/messages.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"

namespace pyrdma::runtime {
namespace {

using OtherPeers = RuntimeWorlds;

INSTANTIATE_TEST_SUITE_P(Worlds, OtherPeers, testing::Values("sim", "shm"),
                         [](const auto& param) { return param.param; });

/// Waits as a thread that nobody cancels.
auto wait_of(Env& env) {
  return [&env](FunctionRef<bool()> ready, Time deadline, Watch& watch) {
    return env.poll_until_ref(ready, deadline, &watch);
  };
}

/// A datagram port of a node that is neither an inbox nor a peer.
struct Stranger {
  explicit Stranger(Env& env)
      : domain(env.device().create_protection_domain()),
        completions(env.device().create_completion_queue(128)),
        memory(env, *domain, 64 * kKiB),
        datagrams(env, *domain, *completions, memory),
        end(env.device().create_queue_pair(*domain, *completions, *completions)) {}
  /// Sends a request for a connection in the name of `node`, whose datagrams it says are `from`.
  void ask_for(NodeId node, const fabric::QpAddress& inbox, const fabric::QpAddress& from) {
    messages::ConnectRequest request;
    request.node = node;
    request.incarnation = 9;
    request.connection = end->address();
    request.connection.node = node;
    request.datagrams = from;
    datagrams.send(inbox, messages::bytes_of(request));
    request.connection.node = end->address().node;
    datagrams.send(inbox, messages::bytes_of(request));
  }
  /// Takes the place of an inbox of node 0; returns the first request for a connection.
  std::optional<messages::ConnectRequest> await_request(Env& env) {
    env.device().rendezvous().publish_value(messages::address_key("test", 0, 0),
                                            messages::Address{datagrams.address()});
    fabric::Completion completion;
    while (completions->poll({&completion, 1}) == 0) env.sleep_until(env.now() + kMicrosecond);
    return messages::read<messages::ConnectRequest>(datagrams.take(completion).bytes);
  }
  std::unique_ptr<fabric::ProtectionDomain> domain;
  std::unique_ptr<fabric::CompletionQueue> completions;
  MemoryPool memory;
  messages::Datagrams datagrams;
  std::unique_ptr<fabric::QueuePair> end;
};

// Node 2 asks in the name of node 1, from its own port and from one that it says is node 1's. The
// inbox neither closes node 1's connection nor makes another.
TEST_P(OtherPeers, AStrangerSpeaksForNobodyElse) {
  run(3, [&](Env& env, const Kill&) {
    const auto wait = wait_of(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      for (int i = 0; i < 20; ++i) {
        const auto request = inbox.next(env.now() + kSetupTimeout, wait);
        ASSERT_TRUE(request.has_value());
        EXPECT_EQ(request->source, 1U);
        EXPECT_EQ(request->connection, 1U);
        inbox.reply(*request, "", wait);
      }
      EXPECT_EQ(inbox.connections(), 1U);
    } else if (env.node() == 1) {
      Peer peer(env, "test", 0, env.now() + kSetupTimeout, wait);
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(peer.call("", env.now() + kSetupTimeout, wait), "");
        if (i == 9) node_barrier(env, "asked", kSetupTimeout, std::vector<NodeId>{1, 2});
      }
    } else {
      Stranger stranger(env);
      const auto inbox = env.device().rendezvous().await_value<messages::Address>(
          messages::address_key("test", 0, 0), env.now() + kSetupTimeout);
      fabric::QpAddress forged = stranger.datagrams.address();
      stranger.ask_for(1, inbox.datagrams, forged);
      forged.node = 1;
      stranger.ask_for(1, inbox.datagrams, forged);
      env.sleep_until(env.now() + kMillisecond);
      node_barrier(env, "asked", kSetupTimeout, std::vector<NodeId>{1, 2});
      node_barrier(env, "end");
      return;
    }
    node_barrier(env, "end");
  });
}

// Node 0 takes the request and does not answer; node 2 answers in its place.
TEST(OtherPeersSim, AnAnswerOfAStrangerConnectsNobody) {
  fabric::sim::SimCluster cluster(sim_options(3));
  std::optional<messages::ConnectRequest> asked;
  cluster.run([&](Env& env) {
    const auto wait = wait_of(env);
    if (env.node() == 1) {
      EXPECT_TRUE(refuses([&] { Peer(env, "test", 0, env.now() + 10 * kMillisecond, wait); },
                          ErrorCode::kTimeout, {"0"}));
      EXPECT_TRUE(asked.has_value());
      return;
    }
    Stranger stranger(env);
    if (env.node() == 0) {
      asked = stranger.await_request(env);
    } else {
      while (!asked) env.sleep_until(env.now() + kMicrosecond);
      messages::ConnectReply reply;
      reply.asked = asked->connection.qp_num;
      reply.max_bytes = 64;
      reply.connection = stranger.end->address();
      for (const NodeId node : {2U, 0U}) {
        reply.connection.node = node;
        stranger.datagrams.send(asked->datagrams, messages::bytes_of(reply));
      }
    }
    env.sleep_until(20 * kMillisecond);
  });
}

// Node 0 answers, and node 2 does at the same time. The peer finds both when it looks next.
TEST(OtherPeersSim, AStrangerHidesNoAnswer) {
  fabric::sim::SimCluster cluster(sim_options(3));
  std::optional<messages::ConnectRequest> asked;
  cluster.run([&](Env& env) {
    if (env.node() == 1) {
      const auto looks_seldom = [&env](FunctionRef<bool()> ready, Time deadline, Watch& /*watch*/) {
        for (; env.now() < deadline; env.sleep_until(env.now() + kMillisecond)) {
          if (ready()) return true;
        }
        return false;
      };
      const Peer peer(env, "test", 0, env.now() + 100 * kMillisecond, looks_seldom);
      EXPECT_EQ(peer.node(), 0U);
      return;
    }
    Stranger stranger(env);
    if (env.node() == 0) {
      asked = stranger.await_request(env);
      ASSERT_TRUE(asked.has_value());
    } else {
      while (!asked) env.sleep_until(env.now() + kMicrosecond);
      env.sleep_until(env.now() + 10 * kMicrosecond);
    }
    messages::ConnectReply reply;
    reply.asked = asked->connection.qp_num;
    reply.max_bytes = 64;
    reply.connection = stranger.end->address();
    reply.connection.node = 0;
    stranger.datagrams.send(asked->datagrams, messages::bytes_of(reply));
    env.sleep_until(env.now() + 20 * kMillisecond);
  });
}

// Over verbs another host may name any node as itself: the network proves its port alone. A queue
// pair of that number at one port is not that at another, and none is at a port that has not asked.
TEST(OtherPeersSim, APortSpeaksForItselfAlone) {
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.run([&](Env& env) {
    const auto wait = wait_of(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      EXPECT_FALSE(inbox.next(env.now() + kMillisecond, wait).has_value());
      EXPECT_EQ(inbox.connections(), 2U);
      return;
    }
    Stranger stranger(env);
    const auto inbox = env.device().rendezvous().await_value<messages::Address>(
        messages::address_key("test", 0, 0), env.now() + kSetupTimeout);
    messages::ConnectRequest request;
    request.node = 1;
    request.connection = stranger.end->address();
    request.datagrams = stranger.datagrams.address();
    using Ports = std::pair<std::uint8_t, std::uint8_t>;  // of the queue pair, and of the datagram
    for (const auto& [end, port] : {Ports{0, 0}, Ports{1, 1}, Ports{2, 1}}) {
      request.connection.gid[15] = end;
      request.datagrams.gid[15] = port;
      ++request.connection.psn;
      stranger.datagrams.send(inbox.datagrams, messages::bytes_of(request));
    }
    env.sleep_until(env.now() + kMillisecond);
  });
}

// Peers come one after the other, and end. The inbox has few connections at any time, and the last
// peers connect as fast as the first.
TEST_P(OtherPeers, PeersThatHaveEndedLeaveNoConnection) {
  constexpr int kPeers = 1000;
  constexpr std::size_t kMostOpen = 250;
  run(2, [&](Env& env, const Kill&) {
    const auto wait = wait_of(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      for (int i = 0; i < kPeers; ++i) {
        const auto request = inbox.next(env.now() + kSetupTimeout, wait);
        ASSERT_TRUE(request.has_value());
        inbox.reply(*request, "", wait);
        ASSERT_LE(inbox.connections(), kMostOpen) << i;
      }
    } else {
      Peer lasting(env, "test", 0, env.now() + kSetupTimeout, wait);
      for (int i = 1; i < kPeers; ++i) {
        Peer peer(env, "test", 0, env.now() + kSetupTimeout, wait);
        peer.call("", env.now() + kSetupTimeout, wait);
        env.sleep_until(env.now() + 50 * kMicrosecond);  // the retries of a probe take 8 ms
      }
      lasting.call("", env.now() + kSetupTimeout, wait);
    }
    node_barrier(env, "end");
  });
}

// Node 1 gives up 80 calls, which are answered later, and takes none of the answers. Node 2 gets
// its answers in time.
TEST(OtherPeersSim, APeerThatTakesNoRepliesDelaysNoOther) {
  constexpr Time kLate = 300 * kMicrosecond;
  constexpr std::uint32_t kGivenUp = 80;
  fabric::sim::SimCluster cluster(sim_options(3));
  cluster.run([&](Env& env) {
    const auto wait = wait_of(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {64, 64});
      std::deque<std::pair<Time, Request>> later;
      for (int good = 0; good < 200;) {
        const Time until = later.empty() ? env.now() + kSecond : later.front().first;
        if (auto request = inbox.next(until, wait)) {
          good += request->source == 2;
          later.emplace_back(env.now() + (request->source == 1 ? kLate : 0), std::move(*request));
        }
        for (; !later.empty() && later.front().first <= env.now(); later.pop_front())
          inbox.reply(later.front().second, "x", wait);
      }
    } else if (env.node() == 1) {
      Peer peer(env, "test", 0, env.now() + kSecond, wait);
      for (std::uint32_t i = 0; i < kGivenUp; ++i)
        EXPECT_TRUE(refuses([&] { peer.call("", env.now() + 3 * kMicrosecond, wait); },
                            ErrorCode::kTimeout));
      node_barrier(env, "end");
      return;
    } else {
      Peer peer(env, "test", 0, env.now() + kSecond, wait);
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(peer.call("", env.now() + 5 * kLate, wait), "x") << i;
        env.sleep_until(env.now() + 5 * kMicrosecond);
      }
    }
    node_barrier(env, "end");
  });
}

}  // namespace
}  // namespace pyrdma::runtime
