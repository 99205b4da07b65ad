// A barrier of nodes through the rendezvous, for the set-up and the end of a run: it needs no
// connection. It is slow; between set-up and end, use a barrier of the system.
#pragma once
#include <span>
#include <string>

#include "env/env.h"
#include "runtime/exchange.h"

namespace pyrdma::runtime {

/// Blocks until every node of `nodes` has called it under `name`. An empty `nodes` means all nodes;
/// otherwise this node is among them. A name is used once. After the barrier all nodes find the
/// values that a node published before it. Throws Error(kTimeout), naming the missing nodes, after
/// `timeout`. A barrier of all nodes throws Error(kUnavailable) soon after a node has ended. A
/// barrier of some nodes does not ask whether nodes have ended. Cost: 2 values per node, because
/// the first node gathers and releases.
void node_barrier(Env& env, const std::string& name, Time timeout = kSetupTimeout,
                  std::span<const NodeId> nodes = {});

}  // namespace pyrdma::runtime
