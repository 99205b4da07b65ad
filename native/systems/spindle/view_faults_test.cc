// View changes while connections are cut and members die, at the moments that hurt.
#include <functional>
#include <string>

#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle {
namespace {

/// Nodes 0, 1, 2 found a group; node 3 joins. `at_accept` runs when one of the first three agrees
/// to the next view.
struct Joined {
  Joined(std::uint32_t members, std::function<void(Joined&, Env&)> what)
      : founders(members), at_accept(std::move(what)) {}
  static constexpr Time kEnd = 100 * kMillisecond;

  void run() {
    cluster.run([&](Env& env) {
      Upcalls upcalls;
      upcalls.view = [&](const ViewShape& shape) {
        const auto [known, is_new] = views.try_emplace(shape.id, shape.members);
        EXPECT_TRUE(is_new || known->second == shape.members) << "view " << shape.id;
      };
      upcalls.accept = [&](const ViewShape& shape) {
        if (shape.id == 2 && env.node() < founders) at_accept(*this, env);
      };
      upcalls.save = [](std::uint32_t) { return Bytes(8); };
      upcalls.load = [](std::uint32_t, ByteView) {};
      SubgroupSpec spec;
      spec.max_message = 64;
      Group group(env, options_of("sim", Options::of(Preset::kPaper)), {spec}, upcalls);
      if (env.node() < founders) {
        group.found(all_nodes(founders));
      } else {
        try {
          group.join(all_nodes(founders));
        } catch (const Error&) {
        }
      }
      group.pause_until(kEnd);
      settled += group.is_settled();
      EXPECT_TRUE(group.is_settled() || group.standing() != Standing::kMember)
          << "node " << env.node() << " changes view " << group.view_id() << " for ever";
      group.pause_until(kEnd + kMillisecond);  // the others still look
    });
  }

  const std::uint32_t founders;
  fabric::sim::SimCluster cluster{runtime::sim_options(founders + 1)};
  std::function<void(Joined&, Env&)> at_accept;
  std::map<std::uint64_t, std::vector<Member>> views;
  std::uint32_t settled = 0;  // nodes in a view that runs, at the end
};

// The others enter the next view, and their last rows to member 2 are lost with the connections. It
// hears of the end of the view with their hellos.
TEST(SpindleViewFaultsSim, AMemberWhoseConnectionsBreakAtTheEndOfAViewEntersTheNextOne) {
  Joined joined(5, [](Joined& self, Env& env) {
    if (env.node() != 1) return;
    for (const NodeId other : {0U, 1U, 3U, 4U}) self.cluster.block(other, 2, 250 * kMicrosecond);
  });
  joined.run();
  EXPECT_EQ(joined.settled, 6U);
  EXPECT_EQ(joined.views.size(), 2U) << "nobody is excluded";
}

// The leader dies as its proposal reaches one member, which has lost the other one. The two are a
// majority of the view, and reach each other soon.
TEST(SpindleViewFaultsSim, CutsAndADeathLeaveNobodyChanging) {
  for (Time delay = 0; delay < 40 * kMicrosecond; delay += kMicrosecond) {
    SCOPED_TRACE(delay);
    Joined joined(3, [delay](Joined& self, Env& env) {
      if (env.node() != 2) return;
      self.cluster.block(0, 1, 100 * kMillisecond);
      self.cluster.block(1, 2, 120 * kMicrosecond);
      self.cluster.kill_later(0, delay);
    });
    joined.run();
    EXPECT_GE(joined.settled, 2U);
  }
}

// The other one may hear that the view is over before it has a connection to the leader, which
// waits for its last row.
TEST(SpindleViewFaultsSim, ALeaderThatLeavesAtOnceHearsOfTheEnd) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    auto options = runtime::sim_options(2, true, seed);
    options.faults[Fault::loss].rate = 0.1;
    fabric::sim::SimCluster cluster(options);
    Log log(2);
    std::uint32_t done = 0;
    cluster.run([&](Env& env) {
      TestNode node(env, "sim", Options::of(Preset::kPaper), {SubgroupSpec{}}, log);
      node.group().found(all_nodes(2));
      if (env.node() == 0) {
        node.group().leave(kPatience);
        EXPECT_EQ(node.group().standing(), Standing::kLeft) << node.group().why_excluded();
      }
      ++done;
      EXPECT_TRUE(node.wait_for([&] { return done == 2; }));
    });
  }
}

// Node 0 has a message queued when nulls are due, and dies as it sends both: whoever stays has its
// message, or nobody has.
TEST(SpindleViewFaultsSim, ASenderThatDiesAmidNullsAndAMessageLeavesAllAlike) {
  std::uint32_t delivered = 0, lost = 0;
  for (Time delay = 0; delay < 8 * kMicrosecond; delay += 100) {
    SCOPED_TRACE(delay);
    fabric::sim::SimCluster cluster(runtime::sim_options(3));
    SubgroupSpec spec;
    spec.max_message = 10'000;
    Options options = Options::of(Preset::kPaper);
    options.predicate_thread = false;
    Log log(3);
    cluster.run([&](Env& env) {
      TestNode node(env, "sim", options, {spec}, log);
      node.group().found(all_nodes(3));
      node.group().pause_until(200 * kMicrosecond);
      if (env.node() == 2) {
        for (int i = 0; i < 3; ++i) node.send(0, 12);
      } else if (env.node() == 0) {
        env.sleep_until(250 * kMicrosecond);  // it makes no turn
        node.send(0, 10'000);
        cluster.kill_later(0, delay);
      }
      node.group().pause_until(3 * kMillisecond);
    });
    EXPECT_TRUE(log.of(1) == log.of(2));
    const auto all = log.of(1);
    const bool has = std::ranges::count(all, NodeId{0}, &Delivery::sender) != 0;
    (has ? delivered : lost) += 1;
  }
  EXPECT_GT(delivered, 5U);
  EXPECT_GT(lost, 5U);
}

// Node 0 is excluded with five messages delivered, and joins again. Its next message is sent while
// the others end the view, and so again in the next one. Its number is one of those that the
// earlier life has used.
TEST(SpindleViewFaultsSim, AMessageOfANewLifeDoesNotCountAsDeliveredForAnOlderOne) {
  constexpr std::uint32_t kNodes = 3;
  fabric::sim::SimCluster cluster(runtime::sim_options(kNodes));
  bool is_back = false, is_done = false;
  cluster.run([&](Env& env) {
    Options options = options_of("sim", Options::of(Preset::kPaper));
    options.predicate_thread = env.node() != 0;
    SubgroupSpec spec;
    spec.senders = {0};
    spec.max_message = 64;
    std::unique_ptr<Group> group;
    std::uint64_t number = 0;
    std::uint32_t own = 0;
    bool is_sent_again = false;
    Upcalls upcalls;
    upcalls.deliver = [&](std::uint32_t, std::span<const Message> messages) {
      own += static_cast<std::uint32_t>(messages.size());
    };
    upcalls.view = [&](const ViewShape&) {
      if (number == 0 || own != 0) return;
      is_sent_again = true;
      EXPECT_NE(group->is_delivered(0, number), true);
    };
    upcalls.save = [](std::uint32_t) { return Bytes(8); };
    upcalls.load = [](std::uint32_t, ByteView) {};
    group = std::make_unique<Group>(env, options, std::vector{spec}, upcalls);
    group->found(all_nodes(kNodes));
    if (env.node() == 0) {
      const Bytes message(20);
      const auto wait_until = [&](const auto& ready) {
        EXPECT_TRUE(group->wait_until([&] { return ready(); }, env.now() + kSecond));
      };
      for (int i = 0; i < 5; ++i) {
        const std::uint64_t each = group->try_send(0, message);
        wait_until([&] { return group->is_delivered(0, each) == true; });
      }
      for (const NodeId other : {1U, 2U}) {
        cluster.block(0, other, 3 * kMillisecond);
        cluster.block(other, 0, 3 * kMillisecond);
      }
      wait_until([&] { return group->standing() == Standing::kExcluded; });
      group->pause_until(env.now() + 4 * kMillisecond);
      group->join({1, 2});
      own = 0;
      is_back = true;
      env.sleep_until(env.now() + 60 * kMicrosecond);  // makes no turn
      number = group->try_send(0, message);
      EXPECT_GE(number, 1U);
      EXPECT_LE(number, 5U);
      wait_until([&] { return own != 0; });
      wait_until([&] { return group->is_delivered(0, number) == true; });
      EXPECT_EQ(own, 1U);
      EXPECT_TRUE(is_sent_again);
      is_done = true;
    } else if (env.node() == 1) {
      EXPECT_TRUE(group->wait_until([&] { return is_back; }, env.now() + kSecond));
      group->leave(5 * kMillisecond);
    }
    EXPECT_TRUE(group->wait_until([&] { return is_done; }, env.now() + kSecond));
  });
}

}  // namespace
}  // namespace pyrdma::spindle
