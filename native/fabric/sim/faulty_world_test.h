// A simulated cluster with some faults, for tests. The test drives its nodes from outside.
#pragma once
#include <gtest/gtest.h>

#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric::sim {

class FaultyWorld final : public World {
 public:
  FaultyWorld(const std::map<std::string, double>& faults, std::uint32_t nodes = 2,
              MemoryModel memory = MemoryModel::weak(), std::map<std::string, double> changes = {})
      : cluster(options(faults, nodes, memory, changes)) {}
  Env& env(NodeId node) override { return cluster.env(node); }
  void kill(NodeId node) override { cluster.kill(node); }
  std::uint64_t fired(Fault fault) {
    return cluster.fault_counters().fired[static_cast<std::size_t>(fault)];
  }
  std::uint64_t reached(Fault fault) {
    return cluster.fault_counters().reached[static_cast<std::size_t>(fault)];
  }
  SimCluster cluster;

 private:
  static SimOptions options(const std::map<std::string, double>& faults, std::uint32_t nodes,
                            MemoryModel memory, const std::map<std::string, double>& changes) {
    SimOptions result;
    result.nodes = nodes;
    auto values = test_profile_values();
    for (const auto& [name, value] : changes) values.at(name) = value;
    result.profile = SimProfile::from_values(values);
    result.memory = memory;
    result.faults = FaultOptions::from_values(faults);
    return result;
  }
};

struct Pair {
  explicit Pair(const std::map<std::string, double>& faults, QpOptions qp = {},
                std::map<std::string, double> changes = {})
      : world(faults, 2, MemoryModel::weak(), changes), a(world, 0), b(world, 1) {
    qa = a.queue_pair(qp);
    qb = b.queue_pair(qp);
    qa->connect(qb->address());
    qb->connect(qa->address());
  }
  void wait(Time ns) { a.env.sleep_until(a.env.now() + ns); }
  Completion write(std::uint64_t value) {
    *a.word(0) = value;
    EXPECT_TRUE(qa->write(a.memory->sge(0, 8), b.memory->remote(), 0));
    return a.await_send();
  }
  FaultyWorld world;
  Side a, b;
  std::unique_ptr<QueuePair> qa, qb;
};

}  // namespace pyrdma::fabric::sim
