// The replicated store over RPCs: it answers in the simulator and over shared memory, its histories
// are linearizable, and clients go on when the leader dies.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "base/error_test.h"
#include "check/check.h"
#include "fabric/shm/cluster.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "measure/workload.h"
#include "systems/erpc/raft/rpc_member.h"
#include "systems/system.h"

namespace pyrdma::erpc {
namespace {

#define PYRDMA_RAFT_NEEDED() \
  if (!raft::raft_problem().empty()) GTEST_SKIP() << raft::raft_problem()

using Int = std::int64_t;

struct RaftRun {
  std::map<NodeId, measure::Recorder> recorders;

  double sum(const std::string& metric) const {
    double found = 0;
    for (const auto& [node, recorder] : recorders) {
      for (const measure::Row& row : recorder.rows()) found += row.metric == metric ? row.value : 0;
    }
    return found;
  }
  check::History history() const {
    std::vector<check::History> parts;
    for (const auto& [node, recorder] : recorders) {
      if (auto part = recorder.history()) parts.push_back(std::move(*part));
    }
    return check::History::merge(parts);
  }
  std::uint64_t commits(NodeId node) const {
    const auto found = recorders.at(node).histograms();
    const auto at = found.find("commit");
    return at == found.end() ? 0 : at->second.total();
  }
  void expect_linearizable() const {
    const check::Verdict verdict = check::check_history(history(), "kv");
    EXPECT_EQ(verdict.answer, check::Answer::kYes) << verdict.text;
  }
};

const measure::ParamMap kFewKeys = {{"iterations", Int{300}}, {"warmup_ns", Int{0}},
                                    {"duration_ns", Int{0}},  {"keys", Int{5}},
                                    {"reads", 0.5},           {"history", Int{1}}};

template <class Cluster, class Run = void (*)(Env&)>
RaftRun run_raft(
    Cluster& cluster, measure::ParamMap given, Run beside = [](Env&) {}) {
  const measure::Workloads& table = systems::workloads();
  given.insert(kFewKeys.begin(), kFewKeys.end());
  const measure::Params params =
      measure::Params::resolve(table.make("erpc_raft")->parameters(), given, "erpc_raft");
  RaftRun run;
  for (NodeId node = 0; node < cluster.nodes(); ++node) run.recorders[node];
  cluster.run([&](Env& env) {
    beside(env);
    table.make("erpc_raft")->run(env, params, run.recorders.at(env.node()));
  });
  return run;
}

fabric::sim::SimOptions sim_of(std::uint32_t nodes) {
  fabric::sim::SimOptions options;
  options.nodes = nodes;
  options.profile = fabric::sim::test_profile();
  return options;
}

TEST(ErpcRaftWorkload, IsLinearizableInTheSimulator) {
  PYRDMA_RAFT_NEEDED();
  fabric::sim::SimCluster cluster(sim_of(5));
  const RaftRun run = run_raft(cluster, {{"threads", Int{2}}, {"in_flight", Int{3}}});
  EXPECT_GE(run.sum("ops"), 4 * 300);
  EXPECT_EQ(run.sum("elections_won"), 1);
  EXPECT_EQ(run.sum("raft_not_sent"), 0);
  run.expect_linearizable();
}

TEST(ErpcRaftWorkload, AMemberMayStoreItsLogOnDisk) {
  PYRDMA_RAFT_NEEDED();
  fabric::sim::SimCluster cluster(sim_of(4));
  const RaftRun run = run_raft(cluster, {{"durability", std::string("disk")}});
  EXPECT_GE(run.sum("ops"), 300);
  run.expect_linearizable();
}

TEST(ErpcRaftWorkload, SnapshotsAndLossDoNotStopIt) {
  PYRDMA_RAFT_NEEDED();
  fabric::sim::SimOptions options = sim_of(4);
  options.faults.enable(Fault::loss);
  fabric::sim::SimCluster cluster(options);
  const RaftRun run = run_raft(cluster, {{"snapshot_entries", Int{50}}});
  EXPECT_GE(run.sum("ops"), 300);
  EXPECT_GT(run.sum("retransmissions"), 0);
  run.expect_linearizable();
}

TEST(ErpcRaftWorkload, IsLinearizableOverSharedMemory) {
  PYRDMA_RAFT_NEEDED();
  fabric::shm::ShmOptions options;
  options.nodes = 4;
  fabric::shm::ShmCluster cluster(options);
  const RaftRun run =
      run_raft(cluster, {{"failure_timeout_ns", Int{30'000'000'000}}, {"in_flight", Int{2}}});
  EXPECT_GE(run.sum("ops"), 300);
  run.expect_linearizable();
}

// The first run shows who leads, and when half of the operations are done.
TEST(ErpcRaftWorkload, ClientsGoOnAfterTheLeadersDeath) {
  PYRDMA_RAFT_NEEDED();
  NodeId leader = 0;
  Time half = 0;
  {
    fabric::sim::SimCluster cluster(sim_of(4));
    const RaftRun run = run_raft(cluster, {});
    while (leader < 3 && run.commits(leader) == 0) ++leader;
    ASSERT_LT(leader, 3U);
    const auto events = run.history().events();
    half = events.at(events.size() / 2).time;
    ASSERT_EQ(run.sum("elections_won"), 1);
  }
  fabric::sim::SimCluster cluster(sim_of(4));
  std::unique_ptr<Thread> killer;
  const RaftRun run = run_raft(cluster, {}, [&](Env& env) {
    if (env.node() != 3) return;
    killer = env.spawn("killer", [&cluster, &env, half, leader] {
      env.sleep_until(half);
      cluster.kill(leader);
    });
  });
  killer->join();
  EXPECT_GE(run.sum("ops"), 300);
  EXPECT_EQ(run.sum("elections_won"), 1) << "the dead leader leaves no row";
  EXPECT_GT(run.sum("tries"), run.sum("ops") + 1);
  NodeId heirs = 0;
  for (NodeId node = 0; node < 3; ++node) heirs += node != leader && run.commits(node) > 0;
  EXPECT_EQ(heirs, 1U);
  run.expect_linearizable();
}

TEST(ErpcRaftWorkload, AGroupWithoutClientsIsRefused) {
  PYRDMA_RAFT_NEEDED();
  fabric::sim::SimCluster cluster(sim_of(3));
  EXPECT_TRUE(refuses([&] { run_raft(cluster, {}); }, ErrorCode::kInvalidArgument, {"3"}));
}

}  // namespace
}  // namespace pyrdma::erpc
