// Views change: members die, leave and join.
#include <algorithm>

#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle {
namespace {

class SpindleViews : public testing::TestWithParam<std::string> {};

/// What the survivors of a change share: one sequence of deliveries, of which one that died has a
/// prefix.
void expect_prefix(const std::vector<Delivery>& part, const std::vector<Delivery>& whole) {
  ASSERT_LE(part.size(), whole.size());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
}

// All messages of survivors are delivered once, by all, in one order (V1, V2, V4).
void expect_once_each(const std::vector<Delivery>& log, NodeId sender, std::uint64_t count) {
  std::uint64_t next = 0;
  for (const Delivery& each : log) {
    if (each.sender != sender) continue;
    EXPECT_EQ(each.number, next++) << "sender " << sender;
  }
  EXPECT_EQ(next, count) << "sender " << sender;
}

void kill_one(const std::string& world, NodeId victim) {
  constexpr std::uint32_t kNodes = 4, kEach = 80;
  SubgroupSpec spec;
  spec.window = 8;
  spec.max_message = 200;
  Log log(kNodes);
  std::atomic<std::uint32_t> done{0};
  runtime::run_world(world, kNodes, [&](Env& env, const runtime::Kill& kill) {
    TestNode node(env, world, Options::of(Preset::kPaper), {spec}, log);
    node.group().found(all_nodes(kNodes));
    for (std::uint32_t i = 0; i < kEach; ++i) {
      if (env.node() == (victim + 1) % kNodes && i == kEach / 3) kill(victim);
      node.send(0, 100);
    }
    if (env.node() == victim) {
      node.wait_for([] { return false; });
      return;
    }
    const auto has_all = [&] {
      std::uint64_t own = 0;
      for (const Delivery& each : log.of(env.node())) own += each.sender != victim;
      return own == (kNodes - 1) * kEach;
    };
    EXPECT_TRUE(node.wait_for(has_all));
    EXPECT_EQ(node.group().view_id(), 2U);
    done.fetch_add(1);
    EXPECT_TRUE(node.wait_for([&] { return done.load() == kNodes - 1; }));
  });
  const NodeId witness = victim == 0 ? 1 : 0;
  const auto whole = log.of(witness);
  for (NodeId node = 0; node < kNodes; ++node) {
    if (node == victim) {
      expect_prefix(log.of(node), whole);
      continue;
    }
    EXPECT_TRUE(log.of(node) == whole) << "node " << node;
    expect_once_each(whole, node, kEach);
    const auto views = log.views(node);
    ASSERT_EQ(views.size(), 2U);
    EXPECT_EQ(views[1].size(), kNodes - 1);
    EXPECT_TRUE(views[1].members == log.views(witness)[1].members);
  }
}

TEST_P(SpindleViews, AMemberDies) { kill_one(GetParam(), 2); }
TEST_P(SpindleViews, TheLeaderDies) { kill_one(GetParam(), 0); }

TEST_P(SpindleViews, AMemberLeavesInGoodOrder) {
  constexpr std::uint32_t kNodes = 3, kEach = 50;
  SubgroupSpec spec;
  spec.window = 6;
  spec.max_message = 100;
  Log log(kNodes);
  std::atomic<std::uint32_t> done{0};
  runtime::run_world(GetParam(), kNodes, [&](Env& env, const runtime::Kill&) {
    TestNode node(env, GetParam(), Options::of(Preset::kPaper), {spec}, log);
    node.group().found(all_nodes(kNodes));
    for (std::uint32_t i = 0; i < kEach; ++i) node.send(0, 60);
    if (env.node() == 0) {
      EXPECT_TRUE(node.wait_for([&] { return log.count(0) == kNodes * kEach; }));
      node.group().leave(kPatience);
      EXPECT_EQ(node.group().standing(), Standing::kLeft);
    } else {
      EXPECT_TRUE(node.wait_for([&] { return node.group().view_id() == 2; }));
      node.send(0, 60);
      EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == kNodes * kEach + 2; }));
    }
    done.fetch_add(1);
    EXPECT_TRUE(node.wait_for([&] { return done.load() == kNodes; }));
  });
  EXPECT_TRUE(log.of(1) == log.of(2));
  expect_prefix(log.of(0), log.of(1));
}

// A member that left may come back, and stays.
TEST_P(SpindleViews, AMemberLeavesAndJoinsAgain) {
  constexpr std::uint32_t kNodes = 3;
  SubgroupSpec spec;
  spec.max_message = 100;
  Log log(kNodes);
  std::atomic<std::uint32_t> done{0};
  runtime::run_world(GetParam(), kNodes, [&](Env& env, const runtime::Kill&) {
    TestNode node(env, GetParam(), Options::of(Preset::kPaper), {spec}, log);
    node.group().found(all_nodes(kNodes));
    if (env.node() == 2) {
      node.group().leave(kPatience);
      node.group().join({0, 1});
      const std::uint64_t view = node.group().view_id();
      EXPECT_FALSE(node.group().wait_until([&] { return node.group().view_id() != view; },
                                           env.now() + 20 * kMillisecond));
      EXPECT_EQ(node.group().standing(), Standing::kMember);
      node.send(0, 60);
    }
    EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == 1; }));
    done.fetch_add(1);
    EXPECT_TRUE(node.wait_for([&] { return done.load() == kNodes; }));
  });
}

// Several nodes join at once, while the others send. Each gets the state of the view before its
// first one, and from then on every message.
struct Herd {
  static constexpr std::uint32_t kNodes = 5, kFounders = 2, kEach = 60;

  void run(Env& env, const std::string& world) {
    SubgroupSpec spec;
    spec.window = 6;
    spec.max_message = 100;
    TestNode node(env, world, Options::of(Preset::kPaper), {spec}, log);
    if (env.node() < kFounders) {
      node.group().found(all_nodes(kFounders));
    } else {
      node.group().join(all_nodes(kFounders));
      EXPECT_GT(node.group().view_id(), 1U);
    }
    for (std::uint32_t i = 0; i < kEach; ++i) node.send(0, 60);
    EXPECT_TRUE(node.wait_for([&] { return node.taken(0) == kNodes * kEach; })) << node.taken(0);
    done.fetch_add(1);
    EXPECT_TRUE(node.wait_for([&] { return done.load() == kNodes; }));
  }
  void check() {
    const auto whole = log.of(0);
    for (NodeId node = 0; node < kNodes; ++node) {
      const auto part = log.of(node);
      ASSERT_LE(part.size(), whole.size());
      EXPECT_TRUE(std::equal(part.rbegin(), part.rend(), whole.rbegin())) << "node " << node;
      expect_once_each(whole, node, kEach);
    }
  }

  Log log{kNodes};
  std::atomic<std::uint32_t> done{0};
};

TEST_P(SpindleViews, AHerdJoinsWithState) {
  Herd herd;
  runtime::run_world(GetParam(), Herd::kNodes,
                     [&](Env& env, const runtime::Kill&) { herd.run(env, GetParam()); });
  herd.check();
}

// A member may learn that its view is over before it has opened all its connections. The others
// need its last row, so it opens them first.
TEST(SpindleViewsSim, AHerdJoinsWhileDatagramsAreLost) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    auto options = runtime::sim_options(Herd::kNodes, true, seed);
    options.faults[Fault::loss].rate = 0.05;  // no connection breaks: it takes four losses in turn
    fabric::sim::SimCluster cluster(options);
    Herd herd;
    cluster.run([&](Env& env) { herd.run(env, "sim"); });
    herd.check();
  }
}

std::vector<std::string> view_worlds() {
  std::vector<std::string> names = spindle_worlds();
  std::erase(names, "verbs");  // whose nodes cannot be killed
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, SpindleViews, testing::ValuesIn(view_worlds()));

// Two of five nodes are cut off. They may install no view; the others go on.
TEST(SpindleViewsSim, AMinorityMayNotInstallAView) {
  constexpr std::uint32_t kNodes = 5, kEach = 30;
  fabric::sim::SimCluster cluster(runtime::sim_options(kNodes));
  SubgroupSpec spec;
  spec.max_message = 100;
  spec.window = 8;
  Log log(kNodes);
  std::uint32_t done = 0;
  cluster.run([&](Env& env) {
    TestNode node(env, "sim", Options::of(Preset::kPaper), {spec}, log);
    node.group().found(all_nodes(kNodes));
    if (env.node() == 0) {
      for (NodeId a = 0; a < 2; ++a) {
        for (NodeId b = 2; b < kNodes; ++b) {
          cluster.block(a, b, kSecond);
          cluster.block(b, a, kSecond);
        }
      }
    }
    if (env.node() < 2) {
      EXPECT_TRUE(node.wait_for([&] { return node.group().standing() == Standing::kExcluded; }));
      EXPECT_EQ(node.group().view_id(), 1U);
      EXPECT_TRUE(refuses([&] { node.group().reserve(0); }, ErrorCode::kUnavailable,
                          {"excluded", "partition_safety"}));
    } else {
      EXPECT_TRUE(node.wait_for([&] { return node.group().view_id() == 2; }));
      for (std::uint32_t i = 0; i < kEach; ++i) node.send(0, 50);
      EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == 3 * kEach; }));
    }
    ++done;
    EXPECT_TRUE(node.wait_for([&] { return done == kNodes; }));
  });
}

// A member whose threads stand still answers no message, though its NIC goes on. Returns whether
// the others go on without it.
bool is_replaced(Bugs bugs) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  SubgroupSpec spec;
  Log log(3);
  bool is_replaced = false;
  std::uint32_t done = 0;
  cluster.run([&](Env& env) {
    TestNode node(env, "sim", Options::of(Preset::kPaper), {spec}, log, bugs);
    node.group().found(all_nodes(3));
    if (env.node() == 2) cluster.pause(2, 50 * kMillisecond);
    const bool has_view = node.group().wait_until([&] { return node.group().view_id() == 2; },
                                                  env.now() + 20 * kMillisecond);
    if (env.node() == 0) is_replaced = has_view;
    ++done;
    node.wait_for([&] { return done == 3; });
  });
  return is_replaced;
}

TEST(SpindleViewsSim, AMemberThatStandsStillIsReplaced) {
  EXPECT_TRUE(is_replaced({}));
  EXPECT_FALSE(is_replaced(Bug::kSilenceIgnored));
}

// Threads that stood still at one time, as when a dead peer blocks a device, do not take each other
// for dead.
TEST(SpindleViewsSim, SurvivorsThatStoodStillTogetherGoOn) {
  fabric::sim::SimCluster cluster(runtime::sim_options(3));
  SubgroupSpec spec;
  spec.max_message = 100;
  Log log(3);
  std::uint32_t done = 0;
  cluster.run([&](Env& env) {
    TestNode node(env, "sim", Options::of(Preset::kPaper), {spec}, log);
    node.group().found(all_nodes(3));
    if (env.node() == 2) {
      cluster.kill(1);
      cluster.pause(2, 2 * kMillisecond);
    } else if (env.node() == 0) {
      env.sleep_until(env.now() + 200 * kMicrosecond);
      cluster.pause(0, 1700 * kMicrosecond);  // it wakes before node 2 does
    }
    EXPECT_TRUE(node.wait_for([&] {
      return node.group().view_id() == 2 || node.group().standing() != Standing::kMember;
    }));
    EXPECT_EQ(node.group().members().size(), 2U) << node.group().why_excluded();
    ++done;
    node.group().wait_until([&] { return done == 2; }, env.now() + kPatience);
  });
}

// The state of a group that one node founds and others join. It takes many requests.
class SpindleStateSim : public testing::Test {
 protected:
  static constexpr std::size_t kStateBytes = 1 << 20;

  explicit SpindleStateSim() : cluster_(runtime::sim_options(4)), groups_(4), states_(4) {
    states_[0] = Bytes(kStateBytes, std::byte{7});
  }
  void run(std::uint32_t nodes, const std::function<void(Env&)>& joiner) {
    cluster_.run([&](Env& env) {
      if (env.node() >= nodes) return;
      Upcalls upcalls;
      upcalls.save = [&](std::uint32_t) { return states_[env.node()]; };
      upcalls.load = [&](std::uint32_t, ByteView state) {
        states_[env.node()] = Bytes(state.begin(), state.end());
        if (on_load) on_load(env);
      };
      upcalls.view = [&](const ViewShape&) {
        if (on_view) on_view(env);
      };
      SubgroupSpec spec;
      spec.window = 4;
      spec.max_message = 100;
      Group group(env, options_of("sim", Options::of(Preset::kPaper)), {spec}, upcalls);
      groups_[env.node()] = &group;
      if (env.node() != 0) return joiner(env);
      group.found({0});
      group.wait_until([] { return false; }, env.now() + kPatience);
    });
  }
  Group& group(NodeId node) { return *groups_[node]; }

  fabric::sim::SimCluster cluster_;
  std::vector<Group*> groups_;
  std::vector<Bytes> states_;
  std::function<void(Env&)> on_load, on_view;
};

// Joiners are a majority of a view, though none of them has its state. The founder dies when all of
// them know of the view.
TEST_F(SpindleStateSim, AViewWithoutItsStateEnds) {
  std::uint32_t done = 0;
  run(4, [&](Env& env) {
    Group& own = group(env.node());
    const auto is_in = [&](NodeId node) {
      return groups_[node] != nullptr && group(node).members().size() == 4;
    };
    auto killer = env.spawn("killer", [&, node = env.node()] {
      while (node == 3 && (!is_in(1) || !is_in(2) || !is_in(3))) env.sleep_until(env.now() + 100);
      if (node == 3) cluster_.kill(0);
    });
    EXPECT_THROW(own.join({0}), Error);
    EXPECT_EQ(own.standing(), Standing::kExcluded);
    EXPECT_NE(own.why_excluded().find("no member of the view has the state"), std::string::npos)
        << own.why_excluded();
    EXPECT_TRUE(states_[env.node()].empty());
    ++done;
    own.wait_until([&] { return done == 3; }, env.now() + kPatience);
  });
  EXPECT_EQ(done, 3U);
}

// A member that has just got the state hands it on, not the one that it had before.
TEST_F(SpindleStateSim, AMemberHandsOnTheStateThatItHasLoaded) {
  std::uint32_t done = 0;
  on_load = [&](Env& env) {
    if (env.node() != 1) return;
    EXPECT_TRUE(states_[2].empty()) << "the other one has the state already";
    EXPECT_EQ(group(1).view_id(), 3U) << "the state came before the other joiner";
    cluster_.kill(0);
  };
  run(3, [&](Env& env) {
    Group& own = group(env.node());
    while (env.node() == 2 && (groups_[1] == nullptr || group(1).view_id() != 2))
      env.sleep_until(env.now() + 100);
    own.join({0});
    EXPECT_EQ(states_[env.node()], Bytes(kStateBytes, std::byte{7})) << "node " << env.node();
    ++done;
    own.wait_until([&] { return done == 2; }, env.now() + kPatience);
  });
  EXPECT_EQ(done, 2U);
}

// The state of a joiner lacks the upcall of its first view, which the joiner has itself.
TEST_F(SpindleStateSim, WhatAViewChangesIsChangedOnce) {
  on_view = [&](Env& env) { states_[env.node()].push_back(std::byte{1}); };
  run(2, [&](Env& env) {
    group(env.node()).join({0});
    EXPECT_EQ(states_[1].size(), kStateBytes + 2) << "two views";
    EXPECT_TRUE(states_[1] == states_[0]);
  });
}

// An excluded node comes back as a new member.
TEST(SpindleViewsSim, AnExcludedNodeJoinsAgain) {
  constexpr std::uint32_t kNodes = 4;
  fabric::sim::SimCluster cluster(runtime::sim_options(kNodes));
  SubgroupSpec spec;
  spec.max_message = 100;
  Log log(kNodes);
  std::uint32_t done = 0;
  cluster.run([&](Env& env) {
    TestNode node(env, "sim", Options::of(Preset::kPaper), {spec}, log);
    node.group().found(all_nodes(kNodes));
    if (env.node() == 3) {
      for (NodeId other = 0; other < 3; ++other) {
        cluster.block(3, other, 4 * kMillisecond);
        cluster.block(other, 3, 4 * kMillisecond);
      }
      EXPECT_TRUE(node.wait_for([&] { return node.group().standing() == Standing::kExcluded; }));
      node.group().join({0, 1, 2});
      EXPECT_EQ(node.group().self().incarnation, 1U);
      node.send(0, 50);
    }
    EXPECT_TRUE(node.wait_for([&] { return node.taken(0) == 1; }));
    ++done;
    EXPECT_TRUE(node.wait_for([&] { return done == kNodes; }));
  });
}

}  // namespace
}  // namespace pyrdma::spindle
