// LOCO's channels under faults: variables, words, a queue, rings, locks and barriers, used by two
// clients of each node at random, and held to the properties L2 to L7.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

Scenario loco_scenario();
/// The locks alone, so that clients meet at them.
Scenario loco_locks_scenario();

}  // namespace pyrdma::fuzz
