// eRPC's workloads over both providers. Every loop runs briefly, so that the sanitizers see it.
#include <gtest/gtest.h>

#include "fabric/shm/cluster.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "measure/workload_cases_test.h"
#include "systems/erpc/ordered_store/ordered_store.h"
#include "systems/erpc/raft/member.h"
#include "systems/system.h"

namespace pyrdma::erpc {
namespace {

const std::vector<measure::WorkloadCase>& erpc_cases() {
  using Int = std::int64_t;
  using Text = std::string;
  // A busy machine may stop a thread for longer than any timeout of a cluster's nodes.
  static const auto patient = [](measure::ParamMap params) {
    params["failure_timeout_ns"] = Int{30'000'000'000};
    return params;
  };
  static const std::vector<measure::WorkloadCase> all = {
      {"erpc_load", patient({})},
      {"erpc_load", patient({{"threads", Int{2}},
                             {"batch", Int{3}},
                             {"in_flight", Int{20}},
                             {"preset", Text("paper")}})},
      {"erpc_load",
       patient({{"pattern", Text("pairs")}, {"request", Int{50'000}}, {"record_rtt", Int{1}}})},
      {"erpc_load", patient({{"pattern", Text("pairs")},
                             {"request", Int{50'000}},
                             {"request_copies", Text("off")}})},
      {"erpc_load", patient({{"pattern", Text("incast")},
                             {"request", Int{20'000}},
                             {"background", Int{9000}},
                             {"congestion_control", Text("dcqcn")}})},
      {"erpc_load", patient({{"pattern", Text("columns")},
                             {"threads", Int{2}},
                             {"workers", Int{1}},
                             {"service_ns", Int{200}},
                             {"sessions", Int{3}},
                             {"response", Int{5000}}})},
      {"erpc_load", patient({{"congestion_control", Text("none")},
                             {"checksums", Text("on")},
                             {"in_flight", Int{7}},
                             {"batch", Int{2}},
                             {"zero_copy_receive", Text("off")},
                             {"preallocated_responses", Text("off")},
                             {"multi_packet_receives", Text("off")}})},
  };
  if (!raft::raft_problem().empty()) return all;
  static const std::vector<measure::WorkloadCase> with_raft = [] {
    std::vector<measure::WorkloadCase> cases = all;
    cases.push_back({"erpc_raft", patient({{"replicas", Int{1}}, {"reads", 0.5}})});
    return cases;
  }();
  return with_raft;
}

const std::vector<measure::WorkloadCase>& store_cases() {
  using Int = std::int64_t;
  static const auto patient = [](measure::ParamMap params) {
    params["failure_timeout_ns"] = Int{30'000'000'000};
    params.try_emplace("keys", Int{1000});
    return params;
  };
  static const std::vector<measure::WorkloadCase> all = {
      {"erpc_store", patient({{"scans", 0.1}})},
      {"erpc_store", patient({{"threads", Int{2}},
                              {"server_threads", Int{3}},
                              {"workers", Int{2}},
                              {"scans", 0.3},
                              {"puts", 0.3},
                              {"in_flight", Int{5}}})},
      {"erpc_store",
       patient({{"workers", Int{0}}, {"scans", 0.3}, {"puts", 0.3}, {"history", Int{1}}})},
      {"erpc_store", patient({{"keys", Int{1}}, {"scans", 0.5}})},
  };
  return all;
}

TEST(ErpcWorkloadsSim, EachRunsAndCounts) {
  fabric::sim::SimOptions options;
  options.nodes = 4;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  measure::run_cases(cluster, systems::workloads(), erpc_cases());
}

TEST(ErpcWorkloadsShm, EachRunsAndCounts) {
  fabric::shm::ShmOptions options;
  options.nodes = 2;
  fabric::shm::ShmCluster cluster(options);
  measure::run_cases(cluster, systems::workloads(), erpc_cases());
}

TEST(ErpcWorkloadsSim, TheStoreIsServed) {
  if (const std::string problem = ordered_store_problem(); !problem.empty())
    GTEST_SKIP() << problem;
  fabric::sim::SimOptions options;
  options.nodes = 3;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  measure::run_cases(cluster, systems::workloads(), store_cases());
}

TEST(ErpcWorkloadsShm, TheStoreIsServed) {
  if (const std::string problem = ordered_store_problem(); !problem.empty())
    GTEST_SKIP() << problem;
  fabric::shm::ShmOptions options;
  options.nodes = 2;
  fabric::shm::ShmCluster cluster(options);
  measure::run_cases(cluster, systems::workloads(), store_cases());
}

}  // namespace
}  // namespace pyrdma::erpc
