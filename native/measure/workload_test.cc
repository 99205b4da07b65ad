// The workloads over both providers, so that the sanitizers see them: every loop, briefly.
#include "measure/workload.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "fabric/shm/cluster.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"

namespace pyrdma::measure {
namespace {

struct Case {
  const char* workload;
  ParamMap params;
};

const std::vector<Case>& cases() {
  using Int = std::int64_t;
  using Text = std::string;
  static const std::vector<Case> all = {
      {"verbs_load", {{"op", Text("write")}}},
      {"verbs_load",
       {{"op", Text("read")}, {"threads", Int{2}}, {"qps", Int{3}}, {"record_latency", Int{1}}}},
      {"verbs_load",
       {{"op", Text("fetch_add")},
        {"servers", Int{0}},
        {"pattern", Text("random")},
        {"qps", Int{4}}}},
      {"verbs_load", {{"op", Text("send")}, {"server_threads", Int{2}}, {"qps", Int{2}}}},
      {"verbs_load", {{"op", Text("write_imm")}, {"size", Int{1000}}}},
      {"verbs_load", {{"op", Text("send")}, {"transport", Text("ud")}}},
      {"verbs_load", {{"op", Text("read")}, {"mode", Text("latency")}, {"record_post", Int{1}}}},
      {"verbs_load", {{"op", Text("write")}, {"measure", Text("pingpong")}, {"size", Int{1}}}},
      {"verbs_load", {{"op", Text("send")}, {"measure", Text("pingpong")}}},
      {"verbs_load", {{"op", Text("read")}, {"mode", Text("open")}, {"interval_ns", Int{1000}}}},
      {"verbs_load",
       {{"op", Text("read")},
        {"addresses", Text("random")},
        {"regions", Int{5}},
        {"region_bytes", Int{8192}}}},
      {"control_path", {{"clients", Int{3}}}},
      {"loco_barrier", {}},
      {"loco_lock", {{"threads", Int{2}}, {"fence", Text("thread")}}},
      {"loco_lock", {{"system", Text("test_and_set")}, {"polling", Text("thread")}}},
      {"loco_lock", {{"system", Text("mpi_windows")}, {"threads", Int{2}}}},
      {"loco_lock", {{"threads", Int{2}}, {"own_memory", Text("nic")}}},
      {"loco_lock", {{"threads", Int{2}}, {"preset", Text("paper")}}},
      {"loco_lock", {{"preset", Text("paper")}, {"one_doorbell", Text("on")}}},
      {"loco_transactions", {{"threads", Int{2}}, {"accounts", Int{20}}}},
      {"loco_transactions",
       {{"threads", Int{2}}, {"accounts", Int{20}}, {"own_memory", Text("nic")}}},
      {"loco_transactions",
       {{"threads", Int{2}}, {"accounts", Int{20}}, {"preset", Text("paper")}}},
      {"loco_transactions",
       {{"system", Text("mpi_windows")}, {"accounts", Int{7}}, {"locks_per_thread", Int{2}}}},
      {"loco_ycsb", {{"keys", Int{500}}, {"window", Int{9}}, {"theta", 0.99}}},
      {"loco_ycsb",
       {{"keys", Int{500}},
        {"threads", Int{2}},
        {"reads", 0.3},
        {"inserts", 0.2},
        {"removes", 0.2},
        {"stored_index", Int{0}},
        {"value_bytes", Int{100}}}},
      {"loco_ycsb",
       {{"keys", Int{500}}, {"reads", 0.3}, {"inserts", 0.2}, {"preset", Text("paper")}}},
      {"loco_ycsb",
       {{"system", Text("sherman")}, {"keys", Int{500}}, {"reads", 0.5}, {"threads", Int{2}}}},
      {"loco_ycsb",
       {{"system", Text("sherman")},
        {"keys", Int{500}},
        {"reads", 0.5},
        {"threads", Int{2}},
        {"local_queues", Int{0}}}},
      {"memcpy", {{"size", Int{100}}, {"footprint_bytes", Int{10000}}}},
      {"idle", {{"threads", Int{2}}, {"duration_ns", Int{10000}}}},
  };
  return all;
}

template <class Cluster>
void run_all(Cluster& cluster) {
  std::int64_t run = 0;
  for (const Case& one : cases()) {
    ParamMap given = one.params;
    given["run"] = ++run;
    if (std::string(one.workload) != "idle") given.try_emplace("iterations", std::int64_t{100});
    if (std::string(one.workload) == "verbs_load" || std::string(one.workload) == "memcpy") {
      given["duration_ns"] = std::int64_t{0};
      given["warmup_ns"] = std::int64_t{1000};
    }
    const Params params =
        Params::resolve(make_workload(one.workload)->parameters(), given, one.workload);
    std::map<NodeId, Recorder> recorders;
    for (NodeId node = 0; node < cluster.nodes(); ++node) recorders[node];
    cluster.run(
        [&](Env& env) { make_workload(one.workload)->run(env, params, recorders.at(env.node())); });
    double operations = 0;
    for (const auto& [node, recorder] : recorders) {
      for (const Row& row : recorder.rows()) {
        if (row.metric == "ops" || row.metric == "elapsed") operations += row.value;
      }
    }
    EXPECT_GE(operations, 100) << one.workload << " case " << run;
  }
}

TEST(WorkloadsSim, EachRunsAndCounts) {
  fabric::sim::SimOptions options;
  options.nodes = 4;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  run_all(cluster);
}

TEST(WorkloadsShm, EachRunsAndCounts) {
  fabric::shm::ShmOptions options;
  options.nodes = 2;
  fabric::shm::ShmCluster cluster(options);
  run_all(cluster);
}

TEST(WorkloadsSim, AFailedRequestIsAnErrorThatNamesThePeer) {
  fabric::sim::SimOptions options;
  options.nodes = 2;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  const Params params =
      Params::resolve(make_workload("verbs_load")->parameters(),
                      {{"duration_ns", std::int64_t{1'000'000'000}}}, "verbs_load");
  std::map<NodeId, Recorder> recorders;
  for (NodeId node = 0; node < 2; ++node) recorders[node];
  try {
    cluster.run([&](Env& env) {
      std::unique_ptr<Thread> end;
      if (env.node() == 1) {
        end = env.spawn("end", [&] {
          env.sleep_until(env.now() + 2 * kMillisecond);
          cluster.kill(0);
        });
      }
      make_workload("verbs_load")->run(env, params, recorders.at(env.node()));
    });
    FAIL() << "the server died unnoticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("to node 0 failed: retry count exceeded"),
              std::string::npos)
        << error.what();
    EXPECT_FALSE(error.definite());
  }
}

}  // namespace
}  // namespace pyrdma::measure
