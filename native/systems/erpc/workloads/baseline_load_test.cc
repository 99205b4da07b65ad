// The load of the baselines over both fabrics.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/error_test.h"
#include "fabric/shm/cluster.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "measure/workload_cases_test.h"
#include "systems/erpc/workloads/workloads.h"

namespace pyrdma::erpc {
namespace {

using Int = std::int64_t;
using Text = std::string;

measure::Workloads baseline_table() {
  static const std::vector<measure::NamedWorkload> rows = {{"erpc_baseline", make_baseline, ""}};
  measure::Workloads table;
  table.add(rows);
  return table;
}

const std::vector<measure::WorkloadCase>& baseline_cases() {
  static const std::vector<measure::WorkloadCase> all = {
      {"erpc_baseline", {}},
      {"erpc_baseline", {{"threads", Int{2}}, {"batch", Int{1}}, {"in_flight", Int{1}}}},
      {"erpc_baseline", {{"request", Int{8}}, {"response", Int{800}}}},
      {"erpc_baseline", {{"system", Text("farm_ring")}}},
      {"erpc_baseline",
       {{"system", Text("farm_ring")}, {"threads", Int{2}}, {"ring_bytes", Int{2048}}}},
      {"erpc_baseline",
       {{"system", Text("farm_ring")}, {"request", Int{800}}, {"response", Int{8}}}},
  };
  return all;
}

TEST(ErpcBaselineLoadSim, EachRunsAndCounts) {
  fabric::sim::SimOptions options;
  options.nodes = 4;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  measure::run_cases(cluster, baseline_table(), baseline_cases());
}

TEST(ErpcBaselineLoadShm, EachRunsAndCounts) {
  fabric::shm::ShmOptions options;
  options.nodes = 2;
  fabric::shm::ShmCluster cluster(options);
  measure::run_cases(cluster, baseline_table(), baseline_cases());
}

// Returns the value of a metric, summed over nodes and threads.
double sum_of(fabric::sim::SimCluster& cluster, const measure::ParamMap& given,
              const std::string& metric) {
  const measure::Workloads table = baseline_table();
  const measure::Params params =
      measure::Params::resolve(table.make("erpc_baseline")->parameters(), given, "erpc_baseline");
  std::map<NodeId, measure::Recorder> recorders;
  for (NodeId node = 0; node < cluster.nodes(); ++node) recorders[node];
  cluster.run(
      [&](Env& env) { table.make("erpc_baseline")->run(env, params, recorders.at(env.node())); });
  double sum = 0;
  for (const auto& [node, recorder] : recorders) {
    for (const measure::Row& row : recorder.rows()) sum += row.metric == metric ? row.value : 0;
  }
  return sum;
}

TEST(ErpcBaselineLoadSim, CountsLostRequests) {
  fabric::sim::SimOptions options;
  options.nodes = 3;
  options.profile = fabric::sim::test_profile();
  const measure::ParamMap given = {{"wait_timeout_ms", Int{1}}, {"duration_ns", Int{20'000}}};
  fabric::sim::SimCluster sound(options);
  EXPECT_EQ(sum_of(sound, given, "lost"), 0);
  options.faults[fault_named("loss")].rate = 0.01;
  fabric::sim::SimCluster lossy(options);
  EXPECT_GT(sum_of(lossy, given, "lost"), 0);
}

TEST(ErpcBaselineLoadSim, RefusesABatchThatIsLargerThanTheWindow) {
  fabric::sim::SimOptions options;
  options.nodes = 2;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  const measure::ParamMap given = {{"batch", Int{5}}, {"in_flight", Int{4}}};
  EXPECT_TRUE(refuses([&] { sum_of(cluster, given, "ops"); }, ErrorCode::kInvalidArgument,
                      {"batch", "in_flight"}));
}

}  // namespace
}  // namespace pyrdma::erpc
