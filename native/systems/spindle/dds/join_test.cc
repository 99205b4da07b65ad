// Joins of topics with logs: what a joiner has before its view runs, how long the turns take, who
// may begin again.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "systems/spindle/dds/participant.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

Topic logged_by(std::vector<NodeId> subscribers) {
  Topic topic;
  topic.name = "t";
  topic.qos = Qos::kLogged;
  topic.publishers = {0};
  topic.subscribers = std::move(subscribers);
  topic.window = 8;
  topic.max_sample = 200;
  topic.history = 10;
  return topic;
}

void publish_samples(DomainParticipant& participant, std::uint64_t count, std::size_t bytes = 50) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::span<std::byte> loan = participant.loan(0);
    std::fill_n(loan.begin(), bytes, static_cast<std::byte>(i));
    participant.publish(0, static_cast<std::uint32_t>(bytes));
  }
}

/// The log of the topic that a node has when it begins.
void write_log(Env& env, std::uint64_t samples) {
  SampleLog log(env, "topic-0.log");
  for (std::uint64_t i = 0; i < samples; ++i) log.append(0, Bytes(100));
  log.sync();
}

/// Waits for what another node does.
void wait_for(Env& env, const std::function<bool()>& ready) {
  const Time patience = env.now() + kPatience;
  while (!ready() && env.now() < patience) env.sleep_until(env.now() + kMicrosecond);
  EXPECT_TRUE(ready());
}

Options join_options() { return options_of("sim", Options::of(Preset::kPaper)); }

/// Node 0 founds a domain, and nodes 1 and 2 join it. Node 3, outside of the domain, lets the power
/// of all of them fail.
class SpindleJoinSim : public testing::Test {
 protected:
  SpindleJoinSim() : cluster_(runtime::sim_options(4)) {
    for (NodeId node = 0; node < 3; ++node) cluster_.expect_restart(node);
  }
  /// `joins` and `restarts` are what a node does in its two lives, beside publishing 50 samples.
  void run(const std::function<void(Env&, DomainParticipant&)>& joins,
           const std::function<void(Env&, DomainParticipant&)>& restarts) {
    cluster_.run([&](Env& env) {
      if (env.node() == 3) {
        wait_for(env, [&] { return is_time_; });
        for (NodeId node = 0; node < 3; ++node) cluster_.kill(node, fabric::sim::Crash::kHost);
        for (NodeId node = 0; node < 3; ++node) cluster_.restart(node);
        return;
      }
      DomainParticipant participant(env, join_options(), {logged_by({0, 1, 2})});
      if (env.incarnation() != 0) return restarts(env, participant);
      if (env.node() == 0) {
        participant.create({0});
        publish_samples(participant, 50);
        participant.group().wait_until([&] { return participant.count(0) == 50; },
                                       env.now() + kPatience);
        participant.sync();
        is_published_ = true;
      } else {
        wait_for(env, [&] { return is_published_; });
      }
      joins(env, participant);
      env.sleep_until(kForever);
    });
  }
  fabric::sim::SimCluster cluster_;
  bool is_published_ = false, is_time_ = false;
};

// A view runs when its joiners have their state on their disks. So they may begin again without the
// node that they have it from.
TEST_F(SpindleJoinSim, TheStateOfAJoinerIsDurable) {
  std::uint32_t done = 0;
  run(
      [&](Env& env, DomainParticipant& participant) {
        if (env.node() != 0) participant.join({0});
        Group& group = participant.group();
        group.wait_until([&] { return group.members().size() == 3 && group.is_settled(); },
                         env.now() + kPatience);
        is_time_ = true;
      },
      [&](Env& env, DomainParticipant& participant) {
        if (env.node() != 0) {
          participant.restart({1, 2});
          EXPECT_EQ(participant.count(0), 50U);
          ++done;
        }
        wait_for(env, [&] { return done == 2; });
      });
}

// The power fails while two of three members have no state. They are no majority of a view that may
// have run, and the log of the third one is there.
TEST_F(SpindleJoinSim, WhoHasNoStateIsNoMajority) {
  std::uint32_t refused = 0, done = 0;
  run(
      [&](Env& env, DomainParticipant& participant) {
        if (env.node() == 0) return;
        auto watcher = env.spawn("watcher", [&] {
          while (participant.group().members().size() < 3) env.sleep_until(env.now() + 100);
          EXPECT_EQ(participant.count(0), 0U) << "it has no state yet";
          is_time_ = true;
          env.sleep_until(kForever);
        });
        participant.join({0});
      },
      [&](Env& env, DomainParticipant& participant) {
        if (env.node() != 0) {
          EXPECT_TRUE(refuses([&] { participant.restart({1, 2}); }, ErrorCode::kUnavailable));
          ++refused;
        }
        wait_for(env, [&] { return refused == 2; });
        participant.restart({0, 1, 2});
        EXPECT_EQ(participant.count(0), 50U);
        ++done;
        wait_for(env, [&] { return done == 3; });
      });
}

struct LongJoin {
  Time longest_turn[4] = {};
  std::uint64_t view = 0, count = 0;
  std::size_t members = 0;
};

// A node joins a topic with a long log. The application makes the turns and measures them.
LongJoin join_long_log(std::uint64_t samples, Bugs bugs) {
  LongJoin result;
  auto values = fabric::sim::test_profile_values();
  values["storage.write_us"] = 20;
  values["storage.sync_us"] = 500;
  values["storage.rate_gbps"] = 4;
  fabric::sim::SimOptions simulation = runtime::sim_options(4);
  simulation.profile = fabric::sim::SimProfile::from_values(values);
  fabric::sim::SimCluster cluster(simulation);
  std::uint32_t ready = 0, joined = 0;
  cluster.run([&](Env& env) {
    const NodeId node = env.node();
    Options options = Options::of(Preset::kPaper);
    options.suspicion_timeout = 20 * kMillisecond;
    options.predicate_thread = false;
    write_log(env, node != 3 ? samples : 0);
    DomainParticipant participant(env, options, {logged_by({0, 1, 2, 3})}, {}, false, bugs);
    Group& group = participant.group();
    const auto turn_until = [&](const std::function<bool()>& is_over) {
      while (!is_over() && group.standing() == Standing::kMember) {
        const Time begin = env.now();
        group.turn();
        if (ready == 3)
          result.longest_turn[node] = std::max(result.longest_turn[node], env.now() - begin);
        env.sleep_until(env.now() + kMicrosecond);
      }
    };
    if (node != 3) {
      participant.create({0, 1, 2});
      ++ready;
      turn_until([&] { return joined == 1; });
      return;
    }
    wait_for(env, [&] { return ready == 3; });
    participant.join({0});
    result.count = participant.count(0);
    result.view = group.view_id();
    result.members = group.members().size();
    joined = 1;
  });
  return result;
}

TEST(SpindleLongJoinSim, TheTurnsAreShort) {
  const LongJoin joined = join_long_log(20'000, {});
  EXPECT_EQ(joined.count, 20'000U);
  EXPECT_EQ(joined.view, 2U) << "nobody was taken for dead";
  EXPECT_EQ(joined.members, 4U);
  // A part is 64 KiB: 130 us of the disk, and one request.
  for (const Time turn : joined.longest_turn) EXPECT_LT(turn, kMillisecond);
}

TEST(SpindleLongJoinSim, AStateInOneTurnIsFound) {
  bool is_found = false;
  try {
    const LongJoin joined = join_long_log(5'000, Bug::kStateInOneTurn);
    is_found = std::ranges::max(joined.longest_turn) > 20 * kMillisecond;
  } catch (const Error&) {  // the members have taken each other for dead
    is_found = true;
  }
  EXPECT_TRUE(is_found);
}

// The one member with the log dies while it hands it on. A publisher, which has none, and a joiner
// are a majority. But they do not go on as if there had been no log.
TEST(SpindleLongJoinSim, AStateThatIsLostIsMissed) {
  for (const Bug bug : {Bug::kNone, Bug::kLostStateIgnored}) {
    fabric::sim::SimCluster cluster(runtime::sim_options(3));
    std::uint32_t ready = 0;
    bool has_joined = false, is_over = false;
    cluster.run([&](Env& env) {
      const NodeId node = env.node();
      if (node == 1) write_log(env, 5'000);
      DomainParticipant participant(env, join_options(), {logged_by({1, 2})}, {}, false, bug);
      Group& group = participant.group();
      if (node == 2) {
        wait_for(env, [&] { return ready == 2; });
        auto killer = env.spawn("killer", [&] {
          while (participant.count(0) == 0) env.sleep_until(env.now() + 100);
          cluster.kill(1);
        });
        try {
          participant.join({0});
          has_joined = true;
        } catch (const Error& error) {
          EXPECT_EQ(group.standing(), Standing::kExcluded);
          EXPECT_NE(group.why_excluded().find("has the state"), std::string::npos)
              << group.why_excluded();
        }
        is_over = true;
        return;
      }
      participant.create({0, 1});
      ++ready;
      wait_for(env, [&] { return is_over; });
    });
    EXPECT_EQ(has_joined, bug == Bug::kLostStateIgnored);
  }
}

/// The member with the log dies while node 2 joins. Node 3 comes, and `delay` later node 0 stands
/// still, so that it learns of both at once. Then node 2 gets no word of node 0 for a while: it
/// answers node 3 before it gives up. Returns how many members the view has in which node 3 begins.
std::size_t members_met(Time delay) {
  fabric::sim::SimCluster cluster(runtime::sim_options(4));
  std::uint32_t ready = 0, refused = 0;
  std::size_t members = 0;
  bool comes = false;
  cluster.run([&](Env& env) {
    const NodeId node = env.node();
    if (node == 1) write_log(env, 5'000);
    DomainParticipant participant(env, join_options(), {logged_by({1, 2, 3})});
    Group& group = participant.group();
    if (node < 2) {
      participant.create({0, 1});
      ++ready;
      return wait_for(env, [&] { return refused == 2; });
    }
    wait_for(env, [&] { return ready == 2 && (node == 2 || comes); });
    bool has_ended = false;
    auto watcher = env.spawn("watcher", [&] {
      if (node == 2) {
        while (participant.count(0) == 0) env.sleep_until(env.now() + 100);
        cluster.kill(1);
        comes = true;
        env.sleep_until(env.now() + delay);
        cluster.pause(0, join_options().suspicion_timeout / 2);
        const std::uint64_t last = group.view_id();
        while (group.view_id() == last && !has_ended) env.sleep_until(env.now() + 100);
        cluster.block(0, 2, 40 * kMicrosecond);
        cluster.block(2, 0, 40 * kMicrosecond);
      }
      while (node == 3 && members == 0 && !has_ended) {
        members = group.members().size();
        env.sleep_until(env.now() + 100);
      }
    });
    EXPECT_THROW(participant.join({0}), Error) << node;
    EXPECT_EQ(group.standing(), Standing::kExcluded);
    has_ended = true;
    ++refused;
    wait_for(env, [&] { return refused == 2; });
  });
  return members;
}

// The same with a second joiner. Of the two that it can ask, one has never had a log, and the other
// one knows that a log is missed.
TEST(SpindleLongJoinSim, AStateThatIsLostIsMissedByLaterJoiners) {
  std::set<std::size_t> met;
  for (Time delay = 20 * kMicrosecond; delay < 40 * kMicrosecond; delay += kMicrosecond)
    met.insert(members_met(delay));
  EXPECT_TRUE(met.contains(3)) << "nodes 0, 2 and 3 were in no view";
}

}  // namespace
}  // namespace pyrdma::spindle::dds
