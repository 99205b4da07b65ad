// Datagrams that nobody may believe, in the KRCore scenario.
#pragma once
#include "systems/krcore/fuzz/world.h"

namespace pyrdma::krcore::scenario {

/// A thread of a node, beside its service: sends forged datagrams of the control path to all
/// services until the world is over.
void send_forged(World& world, Env& env);

}  // namespace pyrdma::krcore::scenario
