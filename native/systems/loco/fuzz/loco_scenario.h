// LOCO's channels under faults: variables, words, a queue, rings, locks and barriers. Two clients
// of each node use them at random. The scenario checks the properties L2 to L7.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::loco {

fuzz::Scenario channels_scenario();
/// The same with locks alone, so that clients contend for them.
fuzz::Scenario locks_scenario();

}  // namespace pyrdma::loco
