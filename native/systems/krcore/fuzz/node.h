// A node of the KRCore scenario: its service, an inbox, and clients with their plans.
#pragma once
#include "systems/krcore/fuzz/world.h"

namespace pyrdma::krcore::scenario {

/// The first thread of a node: returns when the world is over.
void run_node(World& world, Env& env);

}  // namespace pyrdma::krcore::scenario
