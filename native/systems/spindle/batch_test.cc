// The send predicate that waits for a full batch (Options::fixed_batch): what waits for it, and
// what does not.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle {
namespace {

constexpr std::uint32_t kBatchNodes = 3;

Options with_batch(Preset preset, std::uint32_t batch) {
  Options options = Options::of(preset);
  options.fixed_batch = batch;
  return options;
}

std::vector<SubgroupSpec> one_subgroup(std::uint32_t window, std::uint32_t max_message) {
  SubgroupSpec spec;
  spec.window = window;
  spec.max_message = max_message;
  return {spec};
}

std::size_t count_from(Log& log, NodeId at, NodeId sender) {
  const std::vector<Delivery> all = log.of(at);
  return static_cast<std::size_t>(std::ranges::count(all, sender, &Delivery::sender));
}

class SpindleBatch : public testing::TestWithParam<Preset> {};

// Node 0 has three messages, no batch. The others wait for its rounds, so it does not wait for the
// rest of the batch.
TEST_P(SpindleBatch, APartOfABatchDoesNotStopTheOthers) {
  for (const Bug bug : {Bug::kNone, Bug::kPartBatchWaits}) {
    Log log(kBatchNodes);
    std::uint32_t done = 0;
    const auto has_all = [&] {
      bool all = true;
      for (NodeId node = 0; node < kBatchNodes; ++node)
        all = all && count_from(log, node, 1) == 20 && count_from(log, node, 0) == 3;
      return all;
    };
    runtime::run_world("sim", kBatchNodes, [&](Env& env, const runtime::Kill&) {
      TestNode node(env, "sim", with_batch(GetParam(), 8), one_subgroup(40, 100), log, bug);
      node.group().found(all_nodes(kBatchNodes));
      for (int i = 0; i < 3 && env.node() == 0; ++i) node.send(0, 50);
      // The last four of node 1 are no batch either.
      for (int i = 0; i < 20 && env.node() == 1; ++i) node.send(0, 50);
      if (env.node() == 1) node.group().flush(0);
      node.group().wait_until(has_all, env.now() + 20 * kMillisecond);
      ++done;
      node.wait_for([&] { return done == kBatchNodes; });
    });
    EXPECT_EQ(has_all(), bug == Bug::kNone)
        << count_from(log, 2, 0) << ", " << count_from(log, 2, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(WithNulls, SpindleBatch,
                         testing::Values(Preset::kBatchingNulls, Preset::kPaper, Preset::kBest));

class SpindleWholeBatch : public testing::TestWithParam<Preset> {};

// A full batch leaves as a whole, also where the send predicate takes one message at a time, or a
// few of long ones. What is queued behind it is a batch of its own, which a flush ends.
TEST_P(SpindleWholeBatch, LeavesAsAWhole) {
  constexpr std::uint32_t kBatch = 24, kMore = 5;
  std::vector<SubgroupSpec> specs = one_subgroup(64, 10'000);
  specs[0].senders = {0};
  Log log(kBatchNodes);
  std::size_t before = 0;
  bool is_flushed = false;
  run_group("sim", kBatchNodes, with_batch(GetParam(), kBatch), specs, log,
            [&](TestNode& node, Env& env) {
              const auto wait = [&](std::size_t count) {
                node.group().wait_until([&] { return log.count(1) == count; },
                                        env.now() + 20 * kMillisecond);
              };
              if (env.node() != 0) {
                return node.group().pause_until(env.now() + 60 * kMillisecond);
              }
              for (std::uint32_t i = 0; i < kBatch; ++i) node.send(0, 9'000);
              wait(kBatch);
              for (std::uint32_t i = 0; i < kMore; ++i) node.send(0, 9'000);
              wait(kBatch + kMore);
              before = log.count(1);
              node.group().flush(0);
              wait(kBatch + kMore);
              is_flushed = true;
            });
  EXPECT_EQ(before, kBatch);
  EXPECT_TRUE(is_flushed);
  EXPECT_EQ(log.count(1), kBatch + kMore);
}

INSTANTIATE_TEST_SUITE_P(Presets, SpindleWholeBatch,
                         testing::Values(Preset::kBaseline, Preset::kBatching, Preset::kBest));

// Messages that the next view sends again were on their way. So were those of a member that leaves.
TEST(SpindleBatchSim, AChangeOfTheViewEndsABatch) {
  std::vector<SubgroupSpec> specs = one_subgroup(64, 100);
  specs[0].senders = {0};
  for (const bool leaves : {false, true}) {
    fabric::sim::SimCluster cluster(runtime::sim_options(4));
    Log log(4);
    std::uint32_t done = 0;
    cluster.run([&](Env& env) {
      TestNode node(env, "sim", with_batch(Preset::kPaper, 8), specs, log);
      node.group().found(all_nodes(4));
      if (env.node() == 3) return;  // it dies, and the others begin another view
      if (env.node() == 0) {
        for (int i = 0; i < 3; ++i) node.send(0, 50);
        if (leaves) node.group().leave();
      }
      node.group().wait_until([&] { return log.count(1) == 3 && log.count(2) == 3; },
                              env.now() + 20 * kMillisecond);
      ++done;
      node.group().wait_until([&] { return done == 3; }, env.now() + 30 * kMillisecond);
    });
    EXPECT_EQ(log.count(1), 3U) << leaves;
    EXPECT_EQ(log.count(2), 3U) << leaves;
  }
}

// Nothing that was sent is lost when its sender leaves, however many turns it takes to push it.
TEST(SpindleBatchSim, WhoLeavesHasSentAll) {
  for (const Bug bug : {Bug::kNone, Bug::kLeavesUnsent}) {
    std::size_t lost = 0;
    for (const Preset preset : {Preset::kBaseline, Preset::kPaper, Preset::kBest}) {
      Log log(kBatchNodes);
      std::uint32_t done = 0;
      runtime::run_world("sim", kBatchNodes, [&](Env& env, const runtime::Kill&) {
        std::vector<SubgroupSpec> specs = one_subgroup(64, 10'000);
        specs[0].senders = {0};
        TestNode node(env, "sim", Options::of(preset), specs, log, bug);
        node.group().found(all_nodes(kBatchNodes));
        if (env.node() == 0) {
          for (int i = 0; i < 40; ++i) node.send(0, 9'000);
          node.group().leave();
        }
        node.group().wait_until([&] { return log.count(1) == 40; }, env.now() + 20 * kMillisecond);
        ++done;
        node.group().wait_until([&] { return done == kBatchNodes; }, env.now() + 30 * kMillisecond);
      });
      EXPECT_EQ(log.count(1), log.count(2));
      lost += 40 - log.count(1);
    }
    EXPECT_EQ(lost == 0, bug == Bug::kNone) << lost;
  }
}

}  // namespace
}  // namespace pyrdma::spindle
