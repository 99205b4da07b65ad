// Multicasts in a view that does not change, in all worlds and with all presets.
#include <algorithm>
#include <cstring>

#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle {
namespace {

struct MulticastCase {
  std::string world;
  Preset preset;
};

class SpindleMulticasts : public testing::TestWithParam<MulticastCase> {
 protected:
  const std::string& world() const { return GetParam().world; }
  Options options() const { return Options::of(GetParam().preset); }
  bool has_nulls() const { return GetParam().preset >= Preset::kBatchingNulls; }
};

void expect_equal_logs(Log& log, const std::vector<NodeId>& nodes, std::size_t count) {
  for (const NodeId node : nodes) {
    EXPECT_EQ(log.count(node), count) << "node " << node;
    EXPECT_TRUE(log.of(node) == log.of(nodes[0])) << "node " << node;
  }
}

TEST_P(SpindleMulticasts, AllMembersDeliverAllMessagesInOneOrder) {
  constexpr std::uint32_t kNodes = 3, kEach = 60;
  SubgroupSpec spec;
  spec.window = 8;
  spec.max_message = 300;
  Log log(kNodes);
  run_group(world(), kNodes, options(), {spec}, log, [&](TestNode& node, Env& env) {
    Rng rng = env.rng("sizes");
    for (std::uint32_t i = 0; i < kEach; ++i)
      node.send(0, 12 + static_cast<std::uint32_t>(rng.below(289)));
    EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == kNodes * kEach; }));
  });
  expect_equal_logs(log, all_nodes(kNodes), std::size_t{kNodes} * kEach);
  // Round-robin: without nulls, one message of each sender per round.
  if (!has_nulls()) {
    const auto deliveries = log.of(0);
    for (std::size_t i = 0; i < deliveries.size(); ++i)
      EXPECT_EQ(deliveries[i], (Delivery{0, 1, static_cast<NodeId>(i % kNodes), i / kNodes}));
  }
}

TEST_P(SpindleMulticasts, OneSenderAmongThreeMembers) {
  constexpr std::uint32_t kNodes = 3, kEach = 50;
  SubgroupSpec spec;
  spec.senders = {1};
  spec.window = 3;
  spec.max_message = 64;
  Log log(kNodes);
  run_group(world(), kNodes, options(), {spec}, log, [&](TestNode& node, Env& env) {
    for (std::uint32_t i = 0; i < kEach && env.node() == 1; ++i) node.send(0, 64);
    EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == kEach; }));
    const auto counters = node.group().counters();
    EXPECT_EQ(counters.subgroups[0].nulls, 0U);
    EXPECT_EQ(counters.subgroups[0].delivered, kEach);
  });
  expect_equal_logs(log, all_nodes(kNodes), kEach);
}

// Section 3.3: a sender that never sends does not stop the others, and no null follows the last
// message for ever (V8).
TEST_P(SpindleMulticasts, NullsFillInForSilentSendersAndEnd) {
  if (!has_nulls()) GTEST_SKIP() << "the preset has no null-sends";
  constexpr std::uint32_t kNodes = 4, kEach = 50;
  SubgroupSpec spec;
  spec.window = 4;
  spec.max_message = 40;
  Log log(kNodes);
  std::atomic<std::uint32_t> quiet{0};
  run_group(world(), kNodes, options(), {spec}, log, [&](TestNode& node, Env& env) {
    for (std::uint32_t i = 0; i < kEach && env.node() == 2; ++i) node.send(0, 40);
    EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == kEach; }));
    quiet.fetch_add(1);
    EXPECT_TRUE(node.wait_for([&] { return quiet.load() == kNodes; }));
    const auto settle = world().rfind("sim", 0) == 0 ? 100 * kMicrosecond : 50 * kMillisecond;
    node.group().wait_until([] { return false; }, env.now() + settle);
    const std::uint64_t nulls = node.group().counters().subgroups[0].nulls;
    node.group().wait_until([] { return false; }, env.now() + settle);
    EXPECT_EQ(node.group().counters().subgroups[0].nulls, nulls);
    EXPECT_EQ(nulls, env.node() == 2 ? 0U : kEach - (env.node() > 2 ? 1 : 0));
  });
  expect_equal_logs(log, all_nodes(kNodes), kEach);
}

// The memberships of the paper's table 1.
TEST_P(SpindleMulticasts, SubgroupsOverlap) {
  constexpr std::uint32_t kNodes = 5, kEach = 30;
  std::vector<SubgroupSpec> specs(3);
  specs[0].members = {0, 1, 2};
  specs[1].members = {0, 1, 3};
  specs[1].senders = {0, 1};
  specs[2].members = {0, 2, 4};
  for (std::uint32_t g = 0; g < 3; ++g) {
    specs[g].window = 3 - g;
    specs[g].max_message = 50 + g;
  }
  const std::vector<std::uint32_t> expected{8 * kEach, 5 * kEach, 6 * kEach, 2 * kEach, 3 * kEach};
  Log log(kNodes);
  run_group(world(), kNodes, options(), specs, log, [&](TestNode& node, Env& env) {
    for (std::uint32_t i = 0; i < kEach; ++i) {
      for (std::uint32_t g = 0; g < 3; ++g) {
        const auto is_in = [&](const std::vector<NodeId>& nodes) {
          return std::ranges::find(nodes, env.node()) != nodes.end();
        };
        if (is_in(specs[g].senders.empty() ? specs[g].members : specs[g].senders)) node.send(g, 40);
      }
    }
    EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == expected[env.node()]; }))
        << log.count(env.node());
  });
  for (std::uint32_t g = 0; g < 3; ++g) {
    const auto of_subgroup = [&](NodeId node) {
      std::vector<Delivery> found = log.of(node);
      std::erase_if(found, [g](const Delivery& each) { return each.subgroup != g; });
      return found;
    };
    for (const NodeId member : specs[g].members)
      EXPECT_TRUE(of_subgroup(member) == of_subgroup(specs[g].members[0])) << g << ' ' << member;
  }
}

TEST_P(SpindleMulticasts, UnorderedMessagesComeOnceAndInTheOrderOfTheirSender) {
  constexpr std::uint32_t kNodes = 3, kEach = 60;
  SubgroupSpec spec;
  spec.order = Order::kUnordered;
  spec.window = 5;
  spec.max_message = 100;
  Log log(kNodes);
  run_group(world(), kNodes, options(), {spec}, log, [&](TestNode& node, Env& env) {
    for (std::uint32_t i = 0; i < kEach; ++i) node.send(0, 12 + i);
    EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == kNodes * kEach; }));
  });
  for (NodeId node = 0; node < kNodes; ++node) {
    std::vector<std::uint64_t> next(kNodes);
    for (const Delivery& each : log.of(node)) EXPECT_EQ(each.number, next[each.sender]++);
  }
}

TEST_P(SpindleMulticasts, ASleepingGroupIsWokenByADoorbell) {
  constexpr std::uint32_t kNodes = 3;
  SubgroupSpec spec;
  spec.senders = {0};
  spec.max_message = 64;
  Options sleepy = options();
  sleepy.idle_after = kMillisecond;
  Log log(kNodes);
  run_group(world(), kNodes, sleepy, {spec}, log, [&](TestNode& node, Env& env) {
    for (std::uint32_t round = 1; round <= 3; ++round) {
      node.group().wait_until([] { return false; }, env.now() + 5 * kMillisecond);
      if (env.node() == 0) node.send(0, 64);
      EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) >= round; }));
    }
    EXPECT_GE(node.group().counters().sleeps, 1U);
  });
  expect_equal_logs(log, all_nodes(kNodes), 3);
}

TEST_P(SpindleMulticasts, WithoutAThreadTheApplicationRunsThePredicates) {
  constexpr std::uint32_t kNodes = 3, kEach = 40;
  SubgroupSpec spec;
  spec.window = 4;
  spec.max_message = 100;
  Options without = options();
  without.predicate_thread = false;
  Log log(kNodes);
  run_group(world(), kNodes, without, {spec}, log, [&](TestNode& node, Env& env) {
    for (std::uint32_t i = 0; i < kEach; ++i) node.send(0, 100);
    EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == kNodes * kEach; }));
  });
  expect_equal_logs(log, all_nodes(kNodes), std::size_t{kNodes} * kEach);
}

TEST_P(SpindleMulticasts, AFixedBatchWaitsAndAFlushSendsTheRest) {
  constexpr std::uint32_t kNodes = 2, kEach = 21;
  SubgroupSpec spec;
  spec.senders = {0};
  spec.window = 16;
  spec.max_message = 32;
  Options fixed = options();
  fixed.batch_send = true;
  fixed.fixed_batch = 4;
  Log log(kNodes);
  run_group(world(), kNodes, fixed, {spec}, log, [&](TestNode& node, Env& env) {
    if (env.node() == 0) {
      for (std::uint32_t i = 0; i < kEach; ++i) node.send(0, 32);
      node.group().flush(0);
    }
    EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == kEach; }));
  });
}

// All messages are queued before the first turn.
TEST(SpindleShortSendsSim, SplitALongBatch) {
  constexpr std::uint32_t kEach = 21;
  struct Case {
    bool is_short;
    std::uint32_t bytes;
    std::uint64_t batches;
  };
  for (const Case& each :
       {Case{false, 4096, 1}, Case{true, 4096, 11}, Case{true, 10'240, 21}, Case{true, 100, 1}}) {
    SubgroupSpec spec;
    spec.senders = {0};
    spec.window = 32;
    spec.max_message = each.bytes;
    Options options = Options::of(Preset::kPaper);
    options.short_sends = each.is_short;
    options.predicate_thread = false;
    Log log(2);
    run_group("sim", 2, options, {spec}, log, [&](TestNode& node, Env& env) {
      for (std::uint32_t i = 0; i < kEach && env.node() == 0; ++i) node.send(0, 100);
      EXPECT_TRUE(node.wait_for([&] { return log.count(env.node()) == kEach; }));
      if (env.node() == 0) {
        EXPECT_EQ(node.group().counters().subgroups[0].sends.batches(), each.batches) << each.bytes;
      }
    });
  }
}

std::vector<MulticastCase> multicast_cases() {
  std::vector<MulticastCase> cases;
  for (const std::string& world : spindle_worlds()) {
    for (std::size_t i = 0; i < kPresetNames.size(); ++i)
      cases.push_back({world, static_cast<Preset>(i)});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    All, SpindleMulticasts, testing::ValuesIn(multicast_cases()), [](const auto& each) {
      std::string name = each.param.world + "_" +
                         std::string(kPresetNames[static_cast<std::size_t>(each.param.preset)]);
      std::ranges::replace(name, '+', '_');
      return name;
    });

// A guard that arrives before its slots makes nulls of messages (V7). In a total order the sender's
// acknowledgement follows its slots on the same connection, and hides that; without order nothing
// does.
bool all_arrive(Bugs bugs) {
  std::uint32_t arrived = 0;
  bool is_right = true;
  runtime::run_world("sim", 2, [&](Env& env, const runtime::Kill&) {
    SubgroupSpec spec;
    spec.senders = {0};
    spec.window = 4;
    spec.max_message = 8192;
    spec.order = Order::kUnordered;
    Upcalls upcalls;
    upcalls.deliver = [&](std::uint32_t, std::span<const Message> messages) {
      if (env.node() == 0) return;
      for (const Message& message : messages) {
        for (const std::byte each : message.bytes)
          is_right = is_right && each == static_cast<std::byte>(arrived + 1);
        ++arrived;
      }
    };
    Group group(env, options_of("sim", Options::of(Preset::kPaper)), {spec}, upcalls, bugs);
    group.found({0, 1});
    for (std::uint32_t i = 0; i < 50 && env.node() == 0; ++i) {
      const std::span<std::byte> slot = group.reserve(0, env.now() + kMillisecond);
      if (slot.empty()) break;
      std::memset(slot.data(), static_cast<int>(i + 1), slot.size());
      group.send(0, 8192);
    }
    group.wait_until([&] { return arrived == 50; }, env.now() + 5 * kMillisecond);
  });
  return is_right && arrived == 50;
}

TEST(SpindleSim, AGuardFollowsItsSlots) {
  EXPECT_TRUE(all_arrive({}));
  EXPECT_FALSE(all_arrive(Bug::kGuardBeforeData));
}

// Every error names the value, the bound and the remedy.
TEST(SpindleSim, BadUseNamesTheFix) {
  runtime::run_world("sim", 2, [](Env& env, const runtime::Kill&) {
    SubgroupSpec spec;
    const auto group_of = [&](const SubgroupSpec& bad, Options options = {}) {
      return [&env, bad, options] { Group group(env, options, {bad}, {}); };
    };
    spec.window = 0;
    EXPECT_TRUE(refuses(group_of(spec), ErrorCode::kInvalidArgument, {"window", "0", "65536"}));
    spec.window = 4;
    spec.max_message = 1 << 24;
    EXPECT_TRUE(refuses(group_of(spec), ErrorCode::kInvalidArgument, {"max_message", "16777216"}));
    spec.max_message = 64;
    spec.members = {0};
    spec.senders = {1};
    EXPECT_TRUE(refuses(group_of(spec), ErrorCode::kInvalidArgument, {"sender 1"}));
    spec.members = spec.senders = {};
    Options hasty;
    hasty.suspicion_timeout = hasty.heartbeat;
    EXPECT_TRUE(refuses(group_of(spec, hasty), ErrorCode::kInvalidArgument,
                        {"suspicion_timeout", "1000000", "2000000"}));
    if (env.node() == 1) return;
    Options alone = options_of("sim", {});
    Group group(env, alone, {spec}, {});
    EXPECT_TRUE(refuses([&] { group.reserve(0); }, ErrorCode::kUnavailable, {"outside"}));
    EXPECT_TRUE(refuses([&] { group.found({0, 7}); }, ErrorCode::kInvalidArgument, {"7", "1"}));
    EXPECT_TRUE(refuses([&] { group.found({1}); }, ErrorCode::kInvalidArgument, {"0"}));
    EXPECT_TRUE(refuses([&] { group.found({0, 0}); }, ErrorCode::kInvalidArgument, {"0", "twice"}));
    EXPECT_EQ(blamed_by([&] { group.join({1}); }), std::vector<NodeId>{1});
    group.found({0});
    EXPECT_TRUE(refuses([&] { group.send(0, 1); }, ErrorCode::kInvalidArgument, {"subgroup 0"}));
    EXPECT_FALSE(group.reserve(0).empty());
    EXPECT_TRUE(refuses([&] { group.send(0, 65); }, ErrorCode::kInvalidArgument, {"65", "64"}));
    group.send(0, 64);
    EXPECT_TRUE(refuses([&] { group.join({1}); }, ErrorCode::kInvalidArgument, {"view 1"}));
    group.leave();
    EXPECT_EQ(group.standing(), Standing::kLeft);
  });
}

// The member whose upcall takes long is named, whatever the order of the subgroup.
TEST(SpindleSim, AWaitNamesTheMemberThatLags) {
  for (const Order order : {Order::kTotal, Order::kUnordered}) {
    std::uint32_t done = 0;
    runtime::run_world("sim", 3, [&](Env& env, const runtime::Kill&) {
      SubgroupSpec spec;
      spec.window = 4;
      spec.max_message = 8;
      spec.senders = {0};
      spec.order = order;
      Options options = options_of("sim", Options::of(Preset::kPaper));
      options.suspicion_timeout = kSecond;
      options.join_timeout = 2 * kSecond;
      Upcalls upcalls;
      upcalls.deliver = [&](std::uint32_t, std::span<const Message>) {
        if (env.node() == 1) env.sleep_until(env.now() + 50 * kMicrosecond);
      };
      Group group(env, options, {spec}, std::move(upcalls));
      group.found(all_nodes(3));
      if (env.node() == 0) {
        for (int i = 0; i < 500; ++i) {
          group.reserve(0);
          group.send(0, 8);
        }
        EXPECT_TRUE(group.reserve(0, env.now() + 20 * kMicrosecond).empty());
        const std::string why = group.describe_wait(0);
        EXPECT_TRUE(names(why, {"node 1 ", "shorter"}) &&
                    why.find(" % of its time") != std::string::npos)
            << why;
      }
      ++done;
      group.wait_until([&] { return done == 3; }, env.now() + kPatience);
    });
  }
}

// An upcall that throws ends the thread of the group, and the next join() says so.
TEST(SpindleSim, AGroupWhoseUpcallThrewIsNotJoinedAgain) {
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    Upcalls upcalls;
    upcalls.deliver = [](std::uint32_t, std::span<const Message>) {
      throw Error(ErrorCode::kInternal, "the upcall is wrong");
    };
    Group group(env, options_of("sim", Options::of(Preset::kPaper)), {SubgroupSpec{}},
                std::move(upcalls));
    group.found({0});
    ASSERT_FALSE(group.reserve(0).empty());
    group.send(0, 8);
    EXPECT_TRUE(group.wait_until([&] { return group.standing() == Standing::kExcluded; },
                                 env.now() + kPatience));
    EXPECT_TRUE(refuses([&] { group.join({1}); }, ErrorCode::kUnavailable,
                        {"the upcall is wrong", "new Group"}));
  });
}

// A member that does not come is named.
TEST(SpindleSim, AMemberThatNeverJoinsIsNamed) {
  runtime::run_world("sim", 3, [](Env& env, const runtime::Kill&) {
    if (env.node() == 2) return;
    Options options = options_of("sim", {});
    options.suspicion_timeout = kSecond;
    options.join_timeout = 2 * kSecond;
    Group group(env, options, {SubgroupSpec{}}, {});
    EXPECT_EQ(blamed_by([&] { group.found({0, 1, 2}); }), std::vector<NodeId>{2});
  });
}

}  // namespace
}  // namespace pyrdma::spindle
