// Topics with the four qualities of service, late joiners, logs and restarts.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "systems/spindle/dds/participant.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

Topic topic_of(Qos qos, std::uint32_t nodes) {
  Topic topic;
  topic.name = "position";
  topic.qos = qos;
  topic.publishers = {0, 1};
  for (NodeId node = 1; node < nodes; ++node) topic.subscribers.push_back(node);
  topic.window = 8;
  topic.max_sample = 200;
  return topic;
}

std::string text_of(const Sample& sample) {
  return {reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size()};
}

void publish(DomainParticipant& participant, const std::string& text) {
  const std::span<std::byte> loan = participant.loan(0);
  ASSERT_GE(loan.size(), text.size());
  std::memcpy(loan.data(), text.data(), text.size());
  participant.publish(0, static_cast<std::uint32_t>(text.size()));
}

class SpindleDds : public testing::TestWithParam<std::tuple<std::string, Qos>> {};

TEST_P(SpindleDds, SubscribersGetAllSamples) {
  const auto& [world, qos] = GetParam();
  constexpr std::uint32_t kNodes = 3, kEach = 40;
  std::atomic<std::uint32_t> done{0};
  std::vector<std::vector<std::string>> seen(kNodes);
  runtime::run_world(world, kNodes, [&, world = world, qos = qos](Env& env, const runtime::Kill&) {
    std::atomic<std::uint32_t> count{0};
    DomainParticipant participant(
        env, options_of(world, Options::of(Preset::kPaper)), {topic_of(qos, kNodes)},
        [&](std::uint32_t, std::span<const Message> messages) {
          for (const Message& message : messages) {
            seen[env.node()].emplace_back(reinterpret_cast<const char*>(message.bytes.data()),
                                          message.bytes.size());
          }
          count.fetch_add(static_cast<std::uint32_t>(messages.size()));
        });
    participant.create(all_nodes(kNodes));
    for (std::uint32_t i = 0; i < kEach && env.node() < 2; ++i)
      publish(participant, std::to_string(env.node()) + ":" + std::to_string(i));
    const auto wait = [&](const std::function<bool()>& ready) {
      EXPECT_TRUE(participant.group().wait_until(ready, env.now() + kPatience));
    };
    if (env.node() != 0) {
      wait([&] { return count.load() == 2 * kEach; });
      if (qos >= Qos::kVolatile) {
        const auto kept = participant.read(0, 10, 5);
        ASSERT_EQ(kept.size(), 5U);
        EXPECT_EQ(kept[0].number, 10U);
        EXPECT_EQ(text_of(kept[0]), seen[env.node()][10]);
        EXPECT_EQ(participant.count(0), 2 * kEach);
      } else {
        EXPECT_TRUE(participant.read(0, 0, 5).empty());
      }
    }
    done.fetch_add(1);
    wait([&] { return done.load() == kNodes; });
  });
  EXPECT_TRUE(seen[0].empty()) << "node 0 only publishes";
  EXPECT_TRUE(qos == Qos::kUnordered || seen[1] == seen[2]);
}

INSTANTIATE_TEST_SUITE_P(
    All, SpindleDds,
    testing::Combine(testing::ValuesIn(spindle_worlds()),
                     testing::Values(Qos::kUnordered, Qos::kAtomic, Qos::kVolatile, Qos::kLogged)),
    [](const auto& each) {
      return std::get<0>(each.param) + "_" +
             std::string(kQosNames[static_cast<std::size_t>(std::get<1>(each.param))]);
    });

// A subscriber that joins gets the samples that the others keep, then all new ones (V6).
TEST(SpindleDdsSim, ALateJoinerCatchesUp) {
  for (const Qos qos : {Qos::kVolatile, Qos::kLogged}) {
    constexpr std::uint32_t kNodes = 4;
    std::uint32_t done = 0;
    std::vector<std::vector<std::string>> kept(kNodes);
    runtime::run_world("sim", kNodes, [&](Env& env, const runtime::Kill&) {
      Topic topic = topic_of(qos, kNodes);
      topic.history = 10;
      DomainParticipant participant(env, options_of("sim", Options::of(Preset::kPaper)), {topic});
      const auto wait = [&](const std::function<bool()>& ready) {
        EXPECT_TRUE(participant.group().wait_until(ready, env.now() + kPatience));
      };
      if (env.node() < 3) {
        participant.create({0, 1, 2});
        for (int i = 0; i < 25 && env.node() == 0; ++i) publish(participant, std::to_string(i));
        wait(
            [&] { return participant.group().view_id() == 2 && participant.group().is_settled(); });
        for (int i = 25; i < 30 && env.node() == 0; ++i) publish(participant, std::to_string(i));
      } else {
        env.sleep_until(env.now() + kMillisecond);
        participant.join({0, 1, 2});
      }
      if (env.node() != 0) {
        wait([&] { return participant.count(0) == 30; });
        for (const Sample& sample : participant.read(0, 0, 100))
          kept[env.node()].push_back(text_of(sample));
      }
      ++done;
      wait([&] { return done == kNodes; });
    });
    EXPECT_EQ(kept[3].size(), qos == Qos::kLogged ? 30U : 10U);
    EXPECT_TRUE(kept[3] == kept[1]);
  }
}

// All participants crash. The logs have different lengths; after the restart all have the longest.
TEST(SpindleDdsSim, ADomainRestartsFromItsLogs) {
  constexpr std::uint32_t kNodes = 3, kDriver = 3;  // a node outside of the domain kills the others
  fabric::sim::SimCluster cluster(runtime::sim_options(kNodes + 1));
  bool is_published = false;
  std::vector<std::uint64_t> before(kNodes), after(kNodes);
  std::vector<std::vector<std::string>> kept(kNodes);
  std::uint32_t done = 0;
  std::uint64_t view = 0;
  for (NodeId node = 0; node < kNodes; ++node) cluster.expect_restart(node);
  cluster.run([&](Env& env) {
    if (env.node() == kDriver) {
      while (!is_published) env.sleep_until(env.now() + 10 * kMicrosecond);
      for (NodeId node = 0; node < kNodes; ++node) {
        cluster.kill(node, fabric::sim::Crash::kHost);
        env.sleep_until(env.now() + 3 * kMicrosecond);
      }
      for (NodeId node = 0; node < kNodes; ++node) cluster.restart(node);
      return;
    }
    Topic topic = topic_of(Qos::kLogged, kNodes);
    topic.sync_every = 1;
    DomainParticipant participant(env, options_of("sim", Options::of(Preset::kPaper)), {topic});
    const auto wait = [&](const std::function<bool()>& ready) {
      return participant.group().wait_until(ready, env.now() + kPatience);
    };
    if (env.incarnation() == 0) {
      participant.create(all_nodes(kNodes));
      if (env.node() == 0) {
        for (int i = 0; i < 40; ++i) publish(participant, "old " + std::to_string(i));
        is_published = true;
      }
      wait([] { return false; });
      return;
    }
    before[env.node()] = participant.count(0);
    participant.restart(all_nodes(kNodes));
    view = participant.group().view_id();
    after[env.node()] = participant.count(0);
    if (env.node() == 0) publish(participant, "new");
    if (env.node() != 0) {
      EXPECT_TRUE(wait([&] {
        const auto all = participant.read(0, 0, 1000);
        return !all.empty() && text_of(all.back()) == "new";
      }));
      for (const Sample& sample : participant.read(0, 0, 1000))
        kept[env.node()].push_back(text_of(sample));
    }
    ++done;
    EXPECT_TRUE(wait([&] { return done == kNodes; }));
  });
  EXPECT_EQ(view, 2U);
  EXPECT_EQ(after[1], after[2]);
  EXPECT_EQ(after[1], std::max(before[1], before[2]));
  EXPECT_TRUE(kept[1] == kept[2]);
  ASSERT_EQ(kept[1].size(), after[1] + 1);
  for (std::uint64_t i = 0; i < after[1]; ++i) EXPECT_EQ(kept[1][i], "old " + std::to_string(i));
}

// The disk of the one node with a log of samples fails. It leaves with the disk's error, and the
// others go on.
TEST(SpindleDdsSim, AMemberWhoseDiskFailsLeaves) {
  constexpr std::uint32_t kNodes = 3;
  fabric::sim::SimOptions simulation = runtime::sim_options(kNodes);
  simulation.faults[Fault::disk_io_error].rate = 1;
  simulation.faults.at_once = false;
  simulation.faults.heal_at = kSecond;
  fabric::sim::SimCluster cluster(simulation);
  Topic topic = topic_of(Qos::kLogged, kNodes);
  topic.subscribers = {2};
  topic.sync_every = 1;
  std::uint32_t done = 0;
  bool has_failed = false;
  cluster.run([&](Env& env) {
    DomainParticipant participant(env, options_of("sim", Options::of(Preset::kPaper)), {topic});
    participant.create(all_nodes(kNodes));
    Group& group = participant.group();
    const auto wait = [&](const std::function<bool()>& ready) {
      EXPECT_TRUE(group.wait_until(ready, env.now() + kPatience));
    };
    if (env.node() == 2) {
      cluster.begin_faults();
      wait([&] { return group.standing() == Standing::kExcluded; });
      EXPECT_NE(group.why_excluded().find("topic-0.log"), std::string::npos)
          << group.why_excluded();
      cluster.heal();  // the others log their next view
      has_failed = true;
    } else {
      group.pause_until(env.now() + 100 * kMicrosecond);
      publish(participant, "lost");
      wait([&] { return has_failed && group.members().size() == 2 && group.is_settled(); });
      publish(participant, "not logged");
    }
    ++done;
    group.wait_until([&] { return done == kNodes; }, env.now() + kPatience);
  });
  EXPECT_EQ(done, kNodes);
}

// A sample may be longer than a message between the nodes.
TEST(SpindleDdsSim, ALogCatchesUpWithLongSamples) {
  constexpr std::uint32_t kNodes = 3;
  constexpr std::size_t kBytes = 200'000;
  std::uint32_t begun = 0, done = 0;
  runtime::run_world("sim", kNodes, [&](Env& env, const runtime::Kill&) {
    Topic topic = topic_of(Qos::kLogged, kNodes);
    topic.window = 2;
    topic.max_sample = kBytes;
    Options options = options_of("sim", Options::of(Preset::kPaper));
    options.join_timeout = kSecond;
    {
      DomainParticipant first(env, options, {topic});
      first.create(all_nodes(kNodes));
      ++begun;
      first.group().wait_until([&] { return begun == kNodes; }, env.now() + kPatience);
    }
    {
      SampleLog log(env, "topic-0.log");
      for (std::uint64_t i = 0; i < (env.node() == 1 ? 5 : 1); ++i)
        log.append(0, Bytes(i == 1 ? 7 : kBytes, static_cast<std::byte>(i)));
      log.sync();
    }
    DomainParticipant participant(env, options, {topic});
    participant.restart(all_nodes(kNodes));
    if (env.node() != 0) {
      const auto all = participant.read(0, 0, 100);
      ASSERT_EQ(all.size(), 5U);
      for (std::uint64_t i = 0; i < 5; ++i)
        EXPECT_TRUE(all[i].bytes == Bytes(i == 1 ? 7 : kBytes, static_cast<std::byte>(i)));
      EXPECT_EQ(participant.read(0, 1, 2).size(), 2U);
    }
    ++done;
    participant.group().wait_until([&] { return done == kNodes; }, env.now() + kPatience);
  });
  EXPECT_EQ(done, kNodes);
}

TEST(SpindleDdsSim, BadTopicsNameTheFix) {
  runtime::run_world("sim", 1, [](Env& env, const runtime::Kill&) {
    const auto refused = [&](const Topic& topic, std::vector<std::string_view> values) {
      return refuses([&] { DomainParticipant participant(env, {}, {topic}); },
                     ErrorCode::kInvalidArgument, values);
    };
    Topic topic;
    EXPECT_TRUE(refused(topic, {"0"}));
    topic.name = "x";
    EXPECT_TRUE(refused(topic, {"x", "publisher"}));
    topic.publishers = {0};
    EXPECT_TRUE(refused(topic, {"subscriber"}));
    topic.subscribers = {0};
    topic.qos = Qos::kVolatile;
    topic.history = 0;
    EXPECT_TRUE(refused(topic, {"history", "0"}));
    topic.history = 1;
    DomainParticipant participant(env, options_of("sim", {}), {topic});
    EXPECT_TRUE(refuses([&] { participant.topic("y"); }, ErrorCode::kInvalidArgument, {"y", "x"}));
  });
}

}  // namespace
}  // namespace pyrdma::spindle::dds
