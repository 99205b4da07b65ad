// A node of the scenario: a storage node, or a client with the operations of its plan. The first
// storage node also ends clients.
#pragma once
#include "systems/krcore/race/fuzz/world.h"

namespace pyrdma::krcore::race::scenario {

/// The first thread of a node: returns when the world is over.
void run_node(World& world, Env& env);

}  // namespace pyrdma::krcore::race::scenario
