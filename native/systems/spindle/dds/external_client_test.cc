// Clients outside of a domain: members relay their samples.
#include "systems/spindle/dds/external_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "systems/spindle/dds/participant.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

Topic relayed(Qos qos) {
  Topic topic;
  topic.name = "position";
  topic.qos = qos;
  topic.publishers = {0, 1};
  topic.subscribers = {1, 2};
  topic.window = 8;
  topic.max_sample = 200;
  return topic;
}

// A node outside of the domain publishes through a member, and through another one when that dies.
TEST(SpindleClientSim, AMemberRelaysTheSamplesOfAClient) {
  constexpr std::uint32_t kNodes = 4, kClient = 3;
  fabric::sim::SimCluster cluster(runtime::sim_options(kNodes));
  std::uint32_t done = 0;
  std::vector<std::vector<std::string>> seen(kNodes);
  const std::vector<Topic> topics{relayed(Qos::kAtomic)};
  const Options options = options_of("sim", Options::of(Preset::kPaper));
  cluster.run([&](Env& env) {
    if (env.node() == kClient) {
      ExternalClient client(env, options, topics, {0, 1});
      for (int i = 0; i < 20; ++i) {
        if (i == 10) cluster.kill(0);
        const std::string text = std::to_string(i);
        client.publish(0, std::as_bytes(std::span(text)), 20 * kMillisecond);
      }
      EXPECT_GT(client.retries(), 0U);
      EXPECT_TRUE(refuses([&] { client.publish(0, Bytes(201), 1); }, ErrorCode::kInvalidArgument,
                          {"201", "200"}));
      ++done;
      return;
    }
    DomainParticipant participant(
        env, options, topics, [&](std::uint32_t, std::span<const Message> messages) {
          for (const Message& message : messages) {
            seen[env.node()].emplace_back(reinterpret_cast<const char*>(message.bytes.data()),
                                          message.bytes.size());
          }
        });
    participant.create({0, 1, 2});
    const auto is_done = [&] { return done == 1 && seen[1].size() >= 20 && seen[2].size() >= 20; };
    EXPECT_TRUE(participant.group().wait_until(is_done, env.now() + kPatience));
  });
  EXPECT_TRUE(seen[1] == seen[2]);
  std::erase_if(seen[1], [last = std::string()](const std::string& each) mutable {
    return std::exchange(last, each) == each;  // one may come twice
  });
  ASSERT_EQ(seen[1].size(), 20U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(seen[1][static_cast<std::size_t>(i)], std::to_string(i));
}

// A client is answered when all members have its sample: the relay may die at once. Whatever its
// members have is there, also on their disks if each sample is synced.
TEST(SpindleClientSim, WhatAClientIsToldStays) {
  constexpr std::uint32_t kNodes = 4, kClient = 3, kSamples = 5;
  for (const Bug bug : {Bug::kNone, Bug::kAnsweredWhenQueued}) {
    std::uint64_t lost = 0, lost_by_power = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      fabric::sim::SimCluster cluster(runtime::sim_options(kNodes, true, seed));
      Topic topic = relayed(Qos::kLogged);
      topic.sync_every = 1;
      const Options options = options_of("sim", Options::of(Preset::kPaper));
      const bool is_relay_alone = seed % 2 == 0;
      bool is_over = false;
      for (const NodeId node : {1U, 2U}) cluster.expect_restart(node);
      cluster.run([&](Env& env) {
        if (env.node() == kClient) {
          ExternalClient client(env, options, {topic}, {0, 1});
          for (std::uint32_t i = 0; i < kSamples; ++i) client.publish(0, Bytes(i + 1), kPatience);
          cluster.kill(0);
          if (!is_relay_alone) {
            for (const NodeId node : {1U, 2U}) cluster.kill(node, fabric::sim::Crash::kHost);
          } else {
            env.sleep_until(env.now() + 5 * kMillisecond);
            for (const NodeId node : {1U, 2U}) cluster.kill(node);
          }
          is_over = true;
          for (const NodeId node : {1U, 2U}) cluster.restart(node);
          return;
        }
        if (env.incarnation() != 0) {
          const std::uint64_t found = SampleLog(env, "topic-0.log").samples();
          (is_relay_alone ? lost : lost_by_power) +=
              kSamples - std::min<std::uint64_t>(found, kSamples);
          return;
        }
        DomainParticipant participant(env, options, {topic}, {}, false, bug);
        participant.create({0, 1, 2});
        participant.group().wait_until([&] { return is_over; }, env.now() + kPatience);
      });
    }
    EXPECT_EQ(lost + lost_by_power != 0, bug != Bug::kNone) << lost << " and " << lost_by_power;
  }
}

// No member is there, or the window is full: the client gives up in time.
TEST(SpindleClientSim, AClientGivesUpInTime) {
  runtime::run_world("sim", 2, [&](Env& env, const runtime::Kill&) {
    if (env.node() == 1) return;
    const Options options = options_of("sim", Options::of(Preset::kPaper));
    Topic topic = relayed(Qos::kAtomic);
    ExternalClient client(env, options, {topic}, {1});
    const Time begin = env.now();
    EXPECT_TRUE(refuses([&] { client.publish(0, Bytes(3), 300 * kMicrosecond); },
                        ErrorCode::kTimeout, {"1", "position"}));
    EXPECT_LT(env.now() - begin, 400 * kMicrosecond);
    EXPECT_TRUE(refuses([&] { client.publish(0, Bytes(3), 300 * kMicrosecond); },
                        ErrorCode::kTimeout, {"1"}));
  });
}

// A member that has not answered in time is not asked first the next time.
TEST(SpindleClientSim, AClientLeavesASilentMember) {
  constexpr std::uint32_t kNodes = 4, kClient = 3;
  fabric::sim::SimCluster cluster(runtime::sim_options(kNodes));
  const Options options = options_of("sim", Options::of(Preset::kPaper));
  const Topic topic = relayed(Qos::kAtomic);
  std::uint32_t ready = 0;
  bool is_over = false;
  cluster.run([&](Env& env) {
    if (env.node() != kClient) {
      DomainParticipant participant(env, options, {topic});
      participant.create({0, 1, 2});
      ++ready;
      participant.group().wait_until([&] { return is_over; }, env.now() + kPatience);
      return;
    }
    ExternalClient client(env, options, {topic}, {0, 1});
    while (ready < 3) env.sleep_until(env.now() + kMicrosecond);
    client.publish(0, Bytes(3), kPatience);
    EXPECT_EQ(client.retries(), 0U) << "node 0 has answered";
    cluster.pause(0, 10 * kMillisecond);
    EXPECT_THROW(client.publish(0, Bytes(3), 200 * kMicrosecond), Error);
    env.sleep_until(env.now() + 2 * kMillisecond);  // the others go on without it
    const std::uint64_t before = client.retries();
    client.publish(0, Bytes(3), kPatience);
    EXPECT_EQ(client.retries(), before);
    is_over = true;
  });
}

}  // namespace
}  // namespace pyrdma::spindle::dds
