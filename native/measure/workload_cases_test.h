// Runs each workload of a table on a cluster for a short time, and expects that each records
// operations or elapsed time.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "measure/workload.h"

namespace pyrdma::measure {

struct WorkloadCase {
  const char* workload;
  ParamMap params;
};

template <class Cluster>
void run_cases(Cluster& cluster, const Workloads& table, const std::vector<WorkloadCase>& cases) {
  std::int64_t run = 0;
  for (const WorkloadCase& one : cases) {
    ParamMap given = one.params;
    given["run"] = ++run;
    if (std::string(one.workload) != "idle") given.try_emplace("iterations", std::int64_t{100});
    if (std::string(one.workload) == "verbs_load" || std::string(one.workload) == "memcpy") {
      given["duration_ns"] = std::int64_t{0};
      given["warmup_ns"] = std::int64_t{1000};
    }
    const Params params =
        Params::resolve(table.make(one.workload)->parameters(), given, one.workload);
    std::map<NodeId, Recorder> recorders;
    for (NodeId node = 0; node < cluster.nodes(); ++node) recorders[node];
    cluster.run(
        [&](Env& env) { table.make(one.workload)->run(env, params, recorders.at(env.node())); });
    double operations = 0;
    for (const auto& [node, recorder] : recorders) {
      for (const Row& row : recorder.rows()) {
        if (row.metric == "ops" || row.metric == "elapsed") operations += row.value;
      }
    }
    EXPECT_GE(operations, 100) << one.workload << " case " << run;
  }
}

}  // namespace pyrdma::measure
