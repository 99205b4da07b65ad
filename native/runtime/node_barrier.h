// A barrier of nodes over the rendezvous: for set-up and ends, where no connection is needed. Slow:
// use a system's own barrier in between.
#pragma once
#include <span>
#include <string>

#include "env/env.h"
#include "runtime/exchange.h"

namespace pyrdma::runtime {

/// Blocks until every node of `nodes` (all nodes when empty, this node among them) has called it
/// under `name`, which is used once. Values that a node published before are there for all nodes
/// afterwards. Throws Error(kTimeout), naming the nodes that did not come, after `timeout`. Cost:
/// the first node gathers and releases, so 2 values per node.
void node_barrier(Env& env, const std::string& name, Time timeout = kSetupTimeout,
                  std::span<const NodeId> nodes = {});

}  // namespace pyrdma::runtime
