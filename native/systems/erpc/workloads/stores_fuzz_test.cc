// The workloads of both stores record linearizable histories under faults of the network, in many
// seeds. The scenarios erpc_raft, erpc_raft_group and erpc_store (fuzz/) search the stores deeper.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "check/check.h"
#include "fabric/sim/cluster.h"
#include "fuzz/small_test.h"
#include "measure/workload.h"
#include "systems/erpc/ordered_store/ordered_store.h"
#include "systems/erpc/raft/member.h"
#include "systems/system.h"

namespace pyrdma::erpc {
namespace {

using Int = std::int64_t;
const std::uint64_t kStoreSeeds = fuzz::kSlowed ? 20 : 500 * fuzz::search_factor();

/// Half of the seeds lose 1 to 50 % of the packets. Node 0 of the ordered store is the store, so no
/// fault kills a node; raft_test.cc and raft/ do. A skewed clock would make the history wrong.
FaultOptions faults_of(Rng& rng) {
  constexpr Fault kKinds[] = {Fault::loss_burst,
                              Fault::duplicate,
                              Fault::reorder,
                              Fault::delay,
                              Fault::clog,
                              Fault::corruption,
                              Fault::late_completion,
                              Fault::pause,
                              Fault::preemption,

                              Fault::partition,
                              Fault::isolation,
                              Fault::partition_partial,
                              Fault::partition_one_way,
                              Fault::partition_flapping,
                              Fault::slow_node,
                              Fault::buffer_overflow};
  FaultOptions faults;
  for (const Fault kind : kKinds) {
    if (rng.below(4) == 0) faults.enable(kind, 0.25 + 2 * rng.uniform());
  }
  if (rng.below(2) == 0) faults[Fault::loss].rate = 0.01 + 0.49 * rng.uniform();
  faults.heal_at = 20 * kMillisecond;
  return faults;
}

struct StoreRun {
  double operations = 0, retransmissions = 0;
  check::Verdict verdict;
  FaultCounters faults;
};

StoreRun run_store(const std::string& workload, std::uint64_t seed, measure::ParamMap given) {
  Rng rng(seed, -1, "stores under faults");
  fabric::sim::SimOptions options;
  options.nodes = 3 + static_cast<std::uint32_t>(rng.below(2)) + (workload == "erpc_raft" ? 1 : 0);
  options.profile = fabric::sim::test_profile();
  options.seed = seed;
  options.faults = faults_of(rng);
  const measure::ParamMap common = {
      {"warmup_ns", Int{0}},
      {"duration_ns", Int{0}},
      {"iterations", Int{25}},
      {"keys", Int{2}},
      {"history", Int{1}},
      {"in_flight", static_cast<Int>(1 + rng.below(3))},
      {"checksums", std::string("on")},
      {"retransmission_timeout_ns", static_cast<Int>(10'000 + rng.below(100'000))},
      {"failure_timeout_ns", Int{5'000'000'000}},
  };
  given.insert(common.begin(), common.end());
  const measure::Workloads& table = systems::workloads();
  const measure::Params params =
      measure::Params::resolve(table.make(workload)->parameters(), given, workload);
  std::map<NodeId, measure::Recorder> recorders;
  for (NodeId node = 0; node < options.nodes; ++node) recorders[node];
  fabric::sim::SimCluster cluster(options);
  cluster.run([&](Env& env) { table.make(workload)->run(env, params, recorders.at(env.node())); });
  StoreRun run;
  run.faults = cluster.fault_counters();
  std::vector<check::History> parts;
  for (const auto& [node, recorder] : recorders) {
    if (auto part = recorder.history()) parts.push_back(std::move(*part));
    for (const measure::Row& row : recorder.rows()) {
      if (row.metric == "ops") run.operations += row.value;
      if (row.metric == "retransmissions") run.retransmissions += row.value;
    }
  }
  run.verdict =
      check::check_history(check::History::merge(parts), workload == "erpc_store" ? "map" : "kv");
  return run;
}

void run_seeds(const std::string& workload, const measure::ParamMap& given) {
  double operations = 0, retransmissions = 0;
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= kStoreSeeds; ++seed) {
    const StoreRun run = run_store(workload, seed, given);
    ASSERT_EQ(run.verdict.answer, check::Answer::kYes) << "seed " << seed << run.verdict.text;
    operations += run.operations;
    retransmissions += run.retransmissions;
    lost += run.faults.reached[static_cast<std::size_t>(Fault::loss)];
  }
  EXPECT_GE(operations, 25.0 * static_cast<double>(kStoreSeeds));
  EXPECT_GT(retransmissions, static_cast<double>(kStoreSeeds));
  EXPECT_GT(lost, kStoreSeeds);
}

TEST(ErpcStoresFuzz, TheOrderedStoreIsLinearizable) {
  if (const std::string problem = ordered_store_problem(); !problem.empty())
    GTEST_SKIP() << problem;
  run_seeds("erpc_store", {{"puts", 0.5}, {"scans", 0.1}});
}

TEST(ErpcStoresFuzz, TheReplicatedStoreIsLinearizable) {
  if (!raft::raft_problem().empty()) GTEST_SKIP() << raft::raft_problem();
  run_seeds("erpc_raft", {{"reads", 0.5},
                          {"snapshot_entries", Int{20}},
                          {"election_timeout_ns", Int{2'000'000}},
                          {"heartbeat_ns", Int{200'000}},
                          {"try_timeout_ns", Int{3'000'000}},
                          {"pause_ns", Int{200'000}}});
}

}  // namespace
}  // namespace pyrdma::erpc
