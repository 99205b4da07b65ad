// Worlds whose completion queues overrun when a test says so.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/worlds_test.h"

namespace pyrdma::runtime {

/// From SimCluster::begin_faults() on, the next completion of each queue overruns it. A wait that
/// does not end by itself ends the run.
inline fabric::sim::SimOptions overrunning(std::uint32_t nodes) {
  fabric::sim::SimOptions options = sim_options(nodes);
  options.faults = FaultOptions::from_values({{"cq_overrun", 1}});
  options.faults.at_once = false;
  options.time_limit = 5 * kSecond;
  return options;
}

/// Whether `wait` throws the error of a queue of node `node` that `owner` uses.
template <typename Wait>
testing::AssertionResult names_overrun(Wait&& wait, NodeId node, const char* owner) {
  const std::string who = "node " + std::to_string(node);
  return refuses(wait, ErrorCode::kUnavailable, {who, owner, "overrun", "make it anew"});
}

}  // namespace pyrdma::runtime
