// Upcalls that take long, or block: the member lives, and the others know it.
#include <functional>
#include <string>
#include <vector>

#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle {
namespace {

/// What one node of a test does slowly.
struct Slow {
  const char* name;
  Preset preset = Preset::kPaper;
  bool own_thread = true;
  Time each = 0;     // of each message
  Time blocked = 0;  // once, in `where`
  const char* where = "";
};

const Slow kSlow[] = {
    {"each_message", Preset::kPaper, true, 100 * kMicrosecond},
    {"each_message_under_the_lock", Preset::kBaseline, true, 100 * kMicrosecond},
    {"each_batch", Preset::kBest, true, 100 * kMicrosecond},
    {"each_message_without_thread", Preset::kPaper, false, 100 * kMicrosecond},
    {"blocked_in_deliver", Preset::kPaper, true, 0, 3 * kMillisecond, "deliver"},
    {"blocked_in_accept", Preset::kPaper, true, 0, 3 * kMillisecond, "accept"},
    {"blocked_in_persist", Preset::kPaper, true, 0, 3 * kMillisecond, "persist"},
    {"blocked_in_view", Preset::kPaper, true, 0, 3 * kMillisecond, "view"},
    {"blocked_in_save", Preset::kPaper, true, 0, 3 * kMillisecond, "save"},
    {"blocked_in_run", Preset::kPaper, true, 0, 3 * kMillisecond, "run"},
};

class SpindleSlowUpcallsSim : public testing::TestWithParam<Slow> {};

// Node 1 of three is slow, or node 0, whom the joiner asks for state; then node 3 joins. Patience
// ends after 0.4 ms. Nobody is excluded.
TEST_P(SpindleSlowUpcallsSim, CostNobodyItsPlace) {
  const Slow& slow = GetParam();
  constexpr std::uint32_t kFounders = 3, kNodes = 4, kEach = 40;
  fabric::sim::SimCluster cluster(runtime::sim_options(kNodes));
  std::uint32_t done = 0;
  bool has_all = false;
  cluster.run([&](Env& env) {
    const bool is_slow = env.node() == (slow.where == std::string("save") ? 0U : 1U);
    std::uint32_t got = 0;
    bool has_blocked = false;
    const auto block_in = [&](const std::string& where, bool is_due = true) {
      if (!is_slow || where != slow.where || has_blocked || !is_due) return;
      has_blocked = true;
      env.sleep_until(env.now() + slow.blocked);
    };
    Upcalls upcalls;
    upcalls.deliver = [&](std::uint32_t, std::span<const Message> messages) {
      got += static_cast<std::uint32_t>(messages.size());
      if (is_slow) env.work(slow.each * static_cast<Time>(messages.size()));
      block_in("deliver");
    };
    upcalls.accept = [&](const ViewShape& shape) { block_in("accept", shape.id == 2); };
    upcalls.view = [&](const ViewShape& shape) { block_in("view", shape.id == 2); };
    upcalls.run = [&](const ViewShape& shape) { block_in("run", shape.id == 2); };
    upcalls.persist = [&] { block_in("persist"); };
    upcalls.save = [&](std::uint32_t) {
      block_in("save");
      return Bytes(8);
    };
    upcalls.load = [](std::uint32_t, ByteView) {};
    Options options = options_of("sim", Options::of(slow.preset));
    options.predicate_thread = slow.own_thread;
    SubgroupSpec spec;
    spec.senders = all_nodes(kFounders);
    spec.window = 20;
    spec.max_message = 64;
    Group group(env, options, {spec}, upcalls);
    if (env.node() < kFounders) {
      group.found(all_nodes(kFounders));
      for (std::uint32_t i = 0; i < kEach; ++i) {
        ASSERT_FALSE(group.reserve(0, env.now() + kPatience).empty());
        group.send(0, 20);
      }
      EXPECT_TRUE(
          group.wait_until([&] { return got == kFounders * kEach; }, env.now() + kPatience));
      has_all = true;
    } else {
      while (!has_all) env.sleep_until(env.now() + 100 * kMicrosecond);
      group.join(all_nodes(kFounders));
    }
    EXPECT_TRUE(
        group.wait_until([&] { return group.members().size() == kNodes && group.is_settled(); },
                         env.now() + kPatience))
        << "node " << env.node() << ": " << group.why_excluded();
    EXPECT_EQ(group.view_id(), 2U) << "no view without a member";
    EXPECT_TRUE(!is_slow || has_blocked || slow.blocked == 0) << "it has never blocked";
    ++done;
    group.wait_until([&] { return done == kNodes; }, env.now() + kPatience);
  });
  EXPECT_EQ(done, kNodes);
}

INSTANTIATE_TEST_SUITE_P(All, SpindleSlowUpcallsSim, testing::ValuesIn(kSlow),
                         [](const auto& each) { return std::string(each.param.name); });

// The same in real time, where the thread that beats is a thread.
TEST(SpindleSlowUpcalls, ABlockedUpcallIsNoDeathOverShm) {
  constexpr std::uint32_t kNodes = 3;
  std::atomic<std::uint32_t> done{0};
  runtime::run_world("shm", kNodes, [&](Env& env, const runtime::Kill&) {
    std::atomic<std::uint32_t> got{0};
    Upcalls upcalls;
    upcalls.deliver = [&](std::uint32_t, std::span<const Message> messages) {
      got.fetch_add(static_cast<std::uint32_t>(messages.size()));
      if (env.node() == 1) env.sleep_until(env.now() + 1500 * kMillisecond);
    };
    Options options = options_of("shm", Options::of(Preset::kBest));
    options.suspicion_timeout = 600 * kMillisecond;
    SubgroupSpec spec;
    spec.senders = {0};
    Group group(env, options, {spec}, upcalls);
    group.found(all_nodes(kNodes));
    if (env.node() == 0) {
      ASSERT_FALSE(group.reserve(0, env.now() + kPatience).empty());
      group.send(0, 20);
    }
    EXPECT_TRUE(group.wait_until([&] { return got.load() == 1; }, env.now() + kPatience));
    done.fetch_add(1);
    EXPECT_TRUE(group.wait_until([&] { return done.load() == kNodes; }, env.now() + kPatience));
    EXPECT_EQ(group.standing(), Standing::kMember) << group.why_excluded();
    EXPECT_EQ(group.view_id(), 1U);
  });
}

}  // namespace
}  // namespace pyrdma::spindle
