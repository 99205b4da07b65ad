// LOCO's workloads over both providers. Every loop runs briefly, so that the sanitizers see it.
#include <gtest/gtest.h>

#include "fabric/shm/cluster.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "measure/workload_cases_test.h"
#include "systems/system.h"

namespace pyrdma::loco {
namespace {

const std::vector<measure::WorkloadCase>& loco_cases() {
  using Int = std::int64_t;
  using Text = std::string;
  static const std::vector<measure::WorkloadCase> all = {
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
      {"loco_ycsb",
       {{"system", Text("sherman")},
        {"keys", Int{500}},
        {"reads", 0.5},
        {"threads", Int{2}},
        {"whole_leaf", Int{0}},
        {"combined_unlock", Int{0}},
        {"grant", Text("ticket")}}},
  };
  return all;
}

TEST(LocoWorkloadsSim, EachRunsAndCounts) {
  fabric::sim::SimOptions options;
  options.nodes = 4;
  options.profile = fabric::sim::test_profile();
  fabric::sim::SimCluster cluster(options);
  measure::run_cases(cluster, systems::workloads(), loco_cases());
}

TEST(LocoWorkloadsShm, EachRunsAndCounts) {
  fabric::shm::ShmOptions options;
  options.nodes = 2;
  fabric::shm::ShmCluster cluster(options);
  measure::run_cases(cluster, systems::workloads(), loco_cases());
}

}  // namespace
}  // namespace pyrdma::loco
