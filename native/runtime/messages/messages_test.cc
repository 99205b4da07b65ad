// Requests and replies in all worlds, with several tasks at a peer, and with nodes that end.
#include "runtime/messages/messages.h"

#include "base/error_test.h"
#include "runtime/messages/parts.h"
#include "runtime/node_barrier.h"
#include "runtime/overrun_test.h"

namespace pyrdma::runtime {
namespace {

using RuntimeMessages = RuntimeWorlds;

INSTANTIATE_TEST_SUITE_P(Worlds, RuntimeMessages, testing::Values("sim", "shm"),
                         [](const auto& param) { return param.param; });

/// Waits as a thread that nobody cancels.
auto waiting(Env& env) {
  return [&env](FunctionRef<bool()> ready, Time deadline, Watch& watch) {
    return env.poll_until_ref(ready, deadline, &watch);
  };
}

/// Answers each request with its bytes reversed, until `requests` have come.
void serve(Env& env, const InboxOptions& options, int requests) {
  const auto wait = waiting(env);
  Inbox inbox(env, "test", options);
  for (int i = 0; i < requests; ++i) {
    const auto request = inbox.next(env.now() + kSetupTimeout, wait);
    ASSERT_TRUE(request.has_value());
    inbox.reply(*request, std::string(request->data.rbegin(), request->data.rend()), wait);
  }
  node_barrier(env, "end");
}

TEST_P(RuntimeMessages, EveryCallGetsItsReply) {
  constexpr int kNodes = 4, kThreads = 3, kCalls = 50;
  run(kNodes, [&](Env& env, const Kill&) {
    if (env.node() == 0) return serve(env, {2, 256}, (kNodes - 1) * kThreads * kCalls);
    const auto wait = waiting(env);
    Peer peer(env, "test", 0, env.now() + kSetupTimeout, wait);
    const auto body = [&](int thread) {
      for (int i = 0; i < kCalls; ++i) {
        const std::string text = std::to_string(thread) + "/" + std::to_string(i) +
                                 std::string(static_cast<std::size_t>(i), '.');
        const std::string reply = peer.call(text, env.now() + kSetupTimeout, wait);
        EXPECT_EQ(reply, std::string(text.rbegin(), text.rend()));
      }
    };
    {
      std::vector<std::unique_ptr<Thread>> threads;
      for (int thread = 1; thread < kThreads; ++thread)
        threads.push_back(env.spawn("caller", [&body, thread] { body(thread); }));
      body(0);
    }
    node_barrier(env, "end");
  });
}

TEST_P(RuntimeMessages, MessagesWithoutReplyComeOnceAndInOrder) {
  run(2, [&](Env& env, const Kill&) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      for (int i = 0; i < 200; ++i) {
        const auto request = inbox.next(env.now() + kSetupTimeout, wait);
        ASSERT_TRUE(request.has_value());
        EXPECT_EQ(request->data, std::to_string(i));
        EXPECT_EQ(request->id, 0U);
        EXPECT_EQ(request->source, 1U);
      }
    } else {
      Peer peer(env, "test", 0, env.now() + kSetupTimeout, wait);
      for (int i = 0; i < 200; ++i) peer.send(std::to_string(i), env.now() + kSetupTimeout, wait);
      node_barrier(env, "end");
      return;
    }
    node_barrier(env, "end");
  });
}

TEST_P(RuntimeMessages, WhatIsTooLongOrOutOfBoundsIsRefused) {
  run(2, [&](Env& env, const Kill&) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      EXPECT_TRUE(refuses([&] { Inbox(env, "none", {0, 64}); }, ErrorCode::kInvalidArgument));
      EXPECT_TRUE(refuses(
          [&] {
            Inbox(env, "none", {1, kMaxMessageBytes + 1});
          },
          ErrorCode::kInvalidArgument));
      Inbox inbox(env, "test", {4, 64});
      const auto request = inbox.next(env.now() + kSetupTimeout, wait);
      ASSERT_TRUE(request.has_value());
      EXPECT_TRUE(refuses([&] { inbox.reply(*request, std::string(65, 'x'), wait); },
                          ErrorCode::kInvalidArgument));
      inbox.reply(*request, std::string(64, 'x'), wait);
      node_barrier(env, "end");
      return;
    }
    EXPECT_TRUE(
        refuses([&] { Peer(env, "test", 9, kSetupTimeout, wait); }, ErrorCode::kInvalidArgument));
    Peer peer(env, "test", 0, env.now() + kSetupTimeout, wait);
    EXPECT_TRUE(refuses([&] { peer.call(std::string(65, 'x'), kForever, wait); },
                        ErrorCode::kInvalidArgument));
    EXPECT_EQ(peer.call("", env.now() + kSetupTimeout, wait), std::string(64, 'x'));
    node_barrier(env, "end");
  });
}

// The peer finds the inbox that the node binds after its restart. The first inbox is not asked any
// more, and its replies do not come.
TEST(RuntimeMessagesSim, AnInboxIsFoundAgainAfterARestart) {
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.kill_later(0, 20 * kMillisecond);
  cluster.restart_later(0, 40 * kMillisecond);
  int failures = 0;
  std::uint64_t replies = 0;
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      while (const auto request = inbox.next(env.now() + 100 * kMillisecond, wait))
        inbox.reply(*request, std::to_string(env.incarnation()), wait);
      return;
    }
    auto peer = std::make_unique<Peer>(env, "test", 0, kSecond, wait);
    for (std::string reply; reply != "1";) {
      try {
        reply = peer->call("", env.now() + kSecond, wait);
        ++replies;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
        EXPECT_FALSE(error.definite());
        EXPECT_EQ(error.nodes(), std::vector<NodeId>{0});
        ++failures;
        peer.reset();
        peer = std::make_unique<Peer>(env, "test", 0, env.now() + kSecond, wait);
      }
      env.sleep_until(env.now() + 100 * kMicrosecond);
    }
  });
  EXPECT_EQ(failures, 1);
  EXPECT_GT(replies, 10U);
}

TEST(RuntimeMessagesSim, AnInboxIsFoundThoughEarlierIncarnationsHadNotBoundIt) {
  fabric::sim::SimCluster cluster(sim_options(2));
  for (int i = 1; i <= 3; ++i) {
    cluster.kill_later(0, i * kMillisecond);
    cluster.restart_later(0, i * kMillisecond + 10 * kMicrosecond);
  }
  std::string reply;
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      env.sleep_until(10 * kMillisecond);
      Inbox inbox(env, "test", {4, 64});
      const auto request = inbox.next(kSecond, wait);
      ASSERT_TRUE(request.has_value());
      return inbox.reply(*request, std::to_string(env.incarnation()), wait);
    }
    Peer peer(env, "test", 0, kSecond, wait);
    reply = peer.call("", env.now() + kSecond, wait);
  });
  EXPECT_EQ(reply, "3");
}

TEST(RuntimeMessagesSim, AnInboxForgetsThePeersOfAnEarlierIncarnation) {
  fabric::sim::SimCluster cluster(sim_options(2));
  for (int i = 1; i <= 8; ++i) {
    cluster.kill_later(1, i * 10 * kMillisecond);
    cluster.restart_later(1, i * 10 * kMillisecond + kMillisecond);
  }
  int served = 0;
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      while (const auto request = inbox.next(env.now() + 50 * kMillisecond, wait)) {
        inbox.reply(*request, request->data, wait);
        served = static_cast<int>(request->connection);
        EXPECT_LE(inbox.connections(), 1U);
      }
      return;
    }
    Peer peer(env, "test", 0, env.now() + kSecond, wait);
    for (int i = 0; i < 1000; ++i) peer.call("x", env.now() + kSecond, wait);
  });
  EXPECT_EQ(served, 9);
}

// Datagrams with addresses of a device that their node does not have. Those who ask soundly are
// served.
TEST(RuntimeMessagesSim, AnInboxOutlivesAddressesThatCannotBe) {
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) return serve(env, {4, 64}, 1);
    fabric::Device& device = env.device();
    const auto domain = device.create_protection_domain();
    const auto completions = device.create_completion_queue(64);
    MemoryPool memory(env, *domain, 64 * kKiB);
    messages::Datagrams datagrams(env, *domain, *completions, memory);
    const auto end = device.create_queue_pair(*domain, *completions, *completions);
    const auto inbox = device.rendezvous().await_value<messages::Address>(
        messages::address_key("test", 0, 0), env.now() + kSetupTimeout);
    messages::ConnectRequest request;
    request.node = 1;
    request.connection = end->address();
    request.datagrams = datagrams.address();
    request.datagrams.lid = 9;
    datagrams.send(inbox.datagrams, messages::bytes_of(request));
    request.connection.lid = 9;
    datagrams.send(inbox.datagrams, messages::bytes_of(request));
    Peer peer(env, "test", 0, env.now() + kSetupTimeout, wait);
    EXPECT_EQ(peer.call("12", env.now() + kSetupTimeout, wait), "21");
    node_barrier(env, "end");
  });
}

TEST(RuntimeMessagesSim, AnInboxOutlivesADeviceWithoutRoom) {
  fabric::sim::SimOptions options = sim_options(2);
  options.faults = FaultOptions::from_values({{"memory_pressure", 0.5}});
  options.faults.at_once = false;
  fabric::sim::SimCluster cluster(options);
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) return serve(env, {4, 64}, 20);
    env.sleep_until(kMillisecond);  // the inbox is there
    cluster.begin_faults();
    for (int call = 0; call < 20;) {
      try {
        Peer peer(env, "test", 0, env.now() + kSecond, wait);
        EXPECT_EQ(peer.call("12", env.now() + kSecond, wait), "21");
        ++call;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kExhausted) << "of this node";
      }
    }
    cluster.heal();
    node_barrier(env, "end");
  });
}

// All queue pairs of the node fail. The datagrams' is connected anew, so that peers connect again.
TEST(RuntimeMessagesSim, AnInboxOutlivesAFailureOfItsDevice) {
  fabric::sim::SimCluster cluster(sim_options(2));
  int failures = 0;
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      for (std::string data; data != "last";) {
        const auto request = inbox.next(env.now() + kSecond, wait);
        ASSERT_TRUE(request.has_value());
        data = request->data;
        inbox.reply(*request, data, wait);
      }
      return env.sleep_until(env.now() + kMillisecond);
    }
    auto peer = std::make_unique<Peer>(env, "test", 0, kSecond, wait);
    EXPECT_EQ(peer->call("first", env.now() + kSecond, wait), "first");
    cluster.fail_device(0, 0, kMillisecond);
    for (std::string reply; reply != "last";) {
      try {
        reply = peer->call("last", env.now() + kSecond, wait);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
        ++failures;
        peer.reset();
        peer = std::make_unique<Peer>(env, "test", 0, env.now() + kSecond, wait);
      }
    }
  });
  EXPECT_EQ(failures, 1);
}

// A queue refuses posts now and then while others are under way. What was refused is posted later.
TEST(RuntimeMessagesSim, AQueueThatRefusesPostsDelaysMessagesAndLosesNone) {
  fabric::sim::SimOptions options = sim_options(3);
  options.faults = FaultOptions::from_values({{"queue_full.rate", 0.3}});
  fabric::sim::SimCluster cluster(options);
  int calls = 0;
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {16, 64});
      while (const auto request = inbox.next(env.now() + 50 * kMillisecond, wait))
        inbox.reply(*request, request->data, wait);
      return;
    }
    Peer peer(env, "test", 0, kSecond, wait);
    const auto body = [&] {
      for (int i = 0; i < 100; ++i, ++calls)
        EXPECT_EQ(peer.call(std::to_string(i), env.now() + kSecond, wait), std::to_string(i));
    };
    std::vector<std::unique_ptr<Thread>> threads;
    for (int i = 0; i < 4; ++i) threads.push_back(env.spawn("caller", body));
  });
  EXPECT_EQ(calls, 800);
  EXPECT_GT(cluster.fault_counters().reached[static_cast<std::size_t>(Fault::queue_full)], 20U);
}

TEST(RuntimeMessagesSim, ACallThatIsGivenUpLeavesRoomForTheNext) {
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      // Replies only after the caller has given up.
      for (std::string data; data != "last";) {
        const auto request = inbox.next(env.now() + kSecond, wait);
        ASSERT_TRUE(request.has_value());
        data = request->data;
        env.sleep_until(env.now() + 30 * kMicrosecond);
        inbox.reply(*request, data, wait);
      }
      return;
    }
    Peer peer(env, "test", 0, env.now() + kSecond, wait);
    for (std::uint32_t i = 0; i < 3 * Peer::kWindow; ++i)
      EXPECT_TRUE(refuses([&] { peer.call("late", env.now() + 10 * kMicrosecond, wait); },
                          ErrorCode::kTimeout));
    EXPECT_EQ(peer.call("last", env.now() + kSecond, wait), "last");
  });
}

TEST(RuntimeMessagesSim, ACallAndAnInboxWhoseQueuesOverrunSaySo) {
  fabric::sim::SimCluster cluster(overrunning(2));
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      const auto first = inbox.next(kForever, wait);
      inbox.reply(*first, "ok", wait);
      EXPECT_TRUE(names_overrun([&] { inbox.next(kForever, wait); }, 0, "an inbox"));
      EXPECT_TRUE(names_overrun([&] { inbox.reply(*first, "ok", wait); }, 0, "an inbox"));
      node_barrier(env, "end");
      return;
    }
    Peer peer(env, "test", 0, kForever, wait);
    EXPECT_EQ(peer.call("one", kForever, wait), "ok");
    cluster.begin_faults();
    const char* const owner = "the connection to a node's inbox";
    EXPECT_TRUE(names_overrun([&] { peer.call("two", kForever, wait); }, 1, owner));
    EXPECT_TRUE(names_overrun([&] { peer.send("three", kForever, wait); }, 1, owner));
    node_barrier(env, "end");
  });
}

TEST(RuntimeMessagesSim, AConnectWhoseQueueOverrunsSaysSo) {
  fabric::sim::SimCluster cluster(overrunning(2));
  cluster.run([&](Env& env) {
    const auto wait = waiting(env);
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, 64});
      node_barrier(env, "bound");
      node_barrier(env, "end");
      return;
    }
    node_barrier(env, "bound");
    cluster.begin_faults();
    EXPECT_TRUE(names_overrun([&] { Peer(env, "test", 0, kForever, wait); }, 1,
                              "the connection to a node's inbox"));
    node_barrier(env, "end");
  });
}

}  // namespace
}  // namespace pyrdma::runtime
