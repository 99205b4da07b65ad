// Receives that go with the queue pair that has taken them: an inbox loses none of its own.
#include "runtime/messages/receives.h"

#include "runtime/messages/messages.h"
#include "runtime/node_barrier.h"
#include "runtime/worlds_test.h"

namespace pyrdma::runtime {
namespace {

using fabric::Completion;
using fabric::Status;
using messages::Receives;

using InboxReceives = RuntimeWorlds;

INSTANTIATE_TEST_SUITE_P(Worlds, InboxReceives, testing::Values("sim", "shm"),
                         [](const auto& param) { return param.param; });

constexpr std::uint32_t kDepth = 2, kBytes = 64;

/// What an end of a connection needs.
struct Objects {
  explicit Objects(Env& env)
      : device(env.device()),
        domain(device.create_protection_domain()),
        completions(device.create_completion_queue(64)),
        memory(env, *domain, 64 * kKiB) {}
  fabric::Device& device;
  std::unique_ptr<fabric::ProtectionDomain> domain;
  std::unique_ptr<fabric::CompletionQueue> completions;
  MemoryPool memory;
};

Completion next_of(Env& env, fabric::CompletionQueue& queue) {
  Completion found;
  found.status = Status::kGeneral;
  EXPECT_TRUE(env.poll_until(
      [&] {
        return queue.poll({&found, 1}) == 1;
      },
      env.now() + kSetupTimeout));
  return found;
}

/// A queue pair that is connected to the other node's of that name.
std::unique_ptr<fabric::QueuePair> connected(Env& env, Objects& objects, const std::string& name,
                                             Receives* receives) {
  fabric::QpOptions options = messages::connection_options(objects.device.capabilities(), 4);
  options.rnr_retry = 3;
  if (receives != nullptr) options.receive_entries = 0;
  auto qp =
      objects.device.create_queue_pair(*objects.domain, *objects.completions, *objects.completions,
                                       options, receives == nullptr ? nullptr : &receives->queue());
  fabric::Rendezvous& rendezvous = objects.device.rendezvous();
  rendezvous.publish_value(name + "/" + std::to_string(env.node()), qp->address());
  qp->connect(rendezvous.await_value<fabric::QpAddress>(name + "/" + std::to_string(1 - env.node()),
                                                        env.now() + kSetupTimeout));
  if (receives != nullptr) {
    EXPECT_TRUE(receives->post());
  }
  node_barrier(env, name + "/connected");
  return qp;
}

// Two queue pairs, one after the other, take all receives and go before anybody looks. The third
// one finds as many as the first.
TEST_P(InboxReceives, WhatGoesWithAQueuePairIsReplaced) {
  constexpr int kRounds = 3;
  run(2, [&](Env& env, const Kill&) {
    Objects objects(env);
    std::optional<Receives> receives;
    if (env.node() == 0)
      receives.emplace(objects.device, *objects.domain, objects.memory, kDepth, kBytes);
    const messages::Slots slots(objects.memory, 1, kBytes);
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = std::to_string(round);
      auto qp = connected(env, objects, name, receives ? &*receives : nullptr);
      for (std::uint32_t i = 0; !receives && i < kDepth; ++i) {
        ASSERT_TRUE(messages::post_message(env, *qp, slots, 0, 0, i, name, 0));
        ASSERT_EQ(next_of(env, *objects.completions).status, Status::kSuccess) << round;
      }
      node_barrier(env, name + "/sent");
      for (std::uint32_t i = 0; receives && i < kDepth; ++i) {
        if (round + 1 < kRounds) {
          qp.reset();
          receives->replace_lost();
          continue;
        }
        std::string data;
        const auto header = receives->take(env, next_of(env, *objects.completions), data);
        ASSERT_TRUE(header.has_value());
        EXPECT_EQ(header->id, i);
        EXPECT_EQ(data, name);
      }
    }
    node_barrier(env, "end");
  });
}

// A message that takes long is taken for a lost one. When it has come, its receive waits for the
// next loss: nobody tries to post it again and again.
TEST(InboxReceivesSim, WhatComesLateIsKept) {
  constexpr std::uint32_t kLong = kMaxMessageBytes;
  fabric::sim::SimCluster cluster(sim_options(2));
  cluster.run([&](Env& env) {
    Objects objects(env);
    if (env.node() == 1) {
      const auto qp = connected(env, objects, "long", nullptr);
      const messages::Slots slots(objects.memory, 1, kLong);
      for (const std::uint32_t bytes : {kLong, kBytes, kBytes}) {
        ASSERT_TRUE(qp->send(slots.sge(0, bytes), 0));
        EXPECT_EQ(next_of(env, *objects.completions).status, Status::kSuccess);
        env.sleep_until(env.now() + kMillisecond);  // the copy takes its time
      }
      return node_barrier(env, "end");
    }
    Receives receives(objects.device, *objects.domain, objects.memory, 1, kLong);
    EXPECT_TRUE(receives.post());
    receives.replace_lost();
    EXPECT_TRUE(receives.post()) << "nothing is lost: the queue is full";
    const auto qp = connected(env, objects, "long", &receives);
    env.sleep_until(env.now() + 20 * kMicrosecond);
    Completion completion;
    EXPECT_EQ(objects.completions->poll({&completion, 1}), 0U) << "the long one is on its way";
    receives.replace_lost();
    for (int message = 0; message < 3; ++message) {
      std::string data;
      EXPECT_TRUE(receives.take(env, next_of(env, *objects.completions), data).has_value());
      EXPECT_TRUE(receives.post()) << message;
    }
    node_barrier(env, "end");
  });
}

// Node 1 is killed within a request again and again. The inbox has as many receives as before, so
// node 2 gets all its replies.
TEST(InboxReceivesSim, AClientThatIsKilledWithinARequestTakesNoneAlong) {
  constexpr int kKills = 8;
  constexpr std::uint32_t kLong = kMaxMessageBytes;
  fabric::sim::SimCluster cluster(sim_options(3));
  for (int i = 1; i <= kKills; ++i) {
    cluster.kill_later(1, i * 10 * kMillisecond);
    cluster.restart_later(1, i * 10 * kMillisecond + kMillisecond);
  }
  int served = 0, replies = 0;
  cluster.run([&](Env& env) {
    const auto wait = [&env](FunctionRef<bool()> ready, Time deadline, Watch& watch) {
      return env.poll_until_ref(ready, deadline, &watch);
    };
    if (env.node() == 0) {
      Inbox inbox(env, "test", {4, kLong});
      while (const auto request = inbox.next(env.now() + 50 * kMillisecond, wait)) {
        inbox.reply(*request, "", wait);
        served += request->source == 1;
      }
      return;
    }
    Peer peer(env, "test", 0, env.now() + kSecond, wait);
    if (env.node() == 1) {
      while (env.incarnation() < kKills)
        peer.call(std::string(kLong, 'b'), env.now() + kSecond, wait);
      return;
    }
    for (; replies < 100; ++replies) {
      peer.call("", env.now() + 10 * kMillisecond, wait);
      env.sleep_until(env.now() + kMillisecond);
    }
  });
  EXPECT_EQ(replies, 100);
  EXPECT_GT(served, 100);
}

}  // namespace
}  // namespace pyrdma::runtime
