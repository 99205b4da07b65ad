// A node of the Tailwind scenario: a server, the coordinator, or a client with the operations of
// its plan. The first client's node also ends servers, and watches whether the run can go on.
#pragma once
#include "systems/tailwind/fuzz/world.h"

namespace pyrdma::tailwind::scenario {

/// The first thread of a node: returns when the world is over.
void run_node(World& world, Env& env);

}  // namespace pyrdma::tailwind::scenario
