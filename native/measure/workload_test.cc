// Every loop of the workloads runs briefly over both providers, so that the sanitizers check it.
#include "measure/workload.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error_test.h"
#include "fabric/shm/cluster.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "fabric/types.h"
#include "measure/shared_workloads.h"
#include "measure/workload_cases_test.h"

namespace pyrdma::measure {
namespace {

const std::vector<WorkloadCase>& cases() {
  using Int = std::int64_t;
  using Text = std::string;
  static const std::vector<WorkloadCase> all = {
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
      {"verbs_load",
       {{"op", Text("send")}, {"transport", Text("ud")}, {"receive_strides", Int{4}}}},
      {"verbs_load", {{"op", Text("read")}, {"mode", Text("latency")}, {"record_post", Int{1}}}},
      {"verbs_load", {{"op", Text("write")}, {"measure", Text("pingpong")}, {"size", Int{1}}}},
      {"verbs_load", {{"op", Text("send")}, {"measure", Text("pingpong")}}},
      {"verbs_load", {{"op", Text("read")}, {"mode", Text("open")}, {"interval_ns", Int{1000}}}},
      {"verbs_load",
       {{"op", Text("read")},
        {"addresses", Text("random")},
        {"regions", Int{5}},
        {"region_bytes", Int{8192}}}},
      {"verbs_load",
       {{"op", Text("write")},
        {"refill", Text("empty")},
        {"threads", Int{6}},
        {"doorbells", Int{5}}}},
      {"verbs_load",
       {{"op", Text("read")},
        {"signal_by", Text("queue_pair")},
        {"signal_every", Int{3}},
        {"qps", Int{4}}}},
      {"verbs_load",
       {{"op", Text("write")},
        {"transport", Text("uc")},
        {"signal_by", Text("queue_pair")},
        {"signal_every", Int{3}}}},
      {"control_path", {{"clients", Int{3}}}},
      {"memcpy", {{"size", Int{100}}, {"footprint_bytes", Int{10000}}}},
      {"idle", {{"threads", Int{2}}, {"duration_ns", Int{10000}}}},
  };
  return all;
}

Workloads table() {
  Workloads shared;
  shared.add(shared_workloads());
  return shared;
}

TEST(WorkloadsSim, EachRunsAndCounts) {
  fabric::sim::SimOptions options;
  options.nodes = 4;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  run_cases(cluster, table(), cases());
}

TEST(WorkloadsShm, EachRunsAndCounts) {
  fabric::shm::ShmOptions options;
  options.nodes = 2;
  fabric::shm::ShmCluster cluster(options);
  run_cases(cluster, table(), cases());
}

TEST(WorkloadsSim, ASlowReceiverCountsAllThatPeersSent) {
  fabric::sim::SimOptions options;
  options.nodes = 2;
  options.profile = fabric::sim::test_profile();
  options.profile.cpu_poll_ns = 2000;  // the senders poll one completion in 64, the receivers all
  fabric::sim::SimCluster cluster(options);
  const Params params = Params::resolve(make_verbs_load()->parameters(),
                                        {{"op", std::string("send")},
                                         {"depth", std::int64_t{512}},
                                         {"batch", std::int64_t{64}},
                                         {"signal_every", std::int64_t{64}},
                                         {"iterations", std::int64_t{512}},
                                         {"duration_ns", std::int64_t{0}},
                                         {"warmup_ns", std::int64_t{0}}},
                                        "verbs_load");
  std::map<NodeId, Recorder> recorders;
  for (NodeId node = 0; node < 2; ++node) recorders[node];
  cluster.run([&](Env& env) { make_verbs_load()->run(env, params, recorders.at(env.node())); });
  std::map<std::string, double> sums;
  for (const auto& [node, recorder] : recorders) {
    for (const Row& row : recorder.rows()) sums[row.metric] += row.value;
  }
  EXPECT_GE(sums["ops"], 512);
  EXPECT_GE(sums["received"], sums["ops"]);
}

TEST(WorkloadsSim, AFailedRequestIsAnErrorThatNamesThePeer) {
  fabric::sim::SimOptions options;
  options.nodes = 2;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  const Params params =
      Params::resolve(make_verbs_load()->parameters(),
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
      make_verbs_load()->run(env, params, recorders.at(env.node()));
    });
    FAIL() << "the server died unnoticed";
  } catch (const Error& error) {
    EXPECT_TRUE(names(error.what(), {"0", to_string(fabric::Status::kRetryExceeded)}));
    EXPECT_FALSE(error.definite());
  }
}

}  // namespace
}  // namespace pyrdma::measure
