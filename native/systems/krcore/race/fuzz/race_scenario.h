// The scenario `krcore_race`: clients change few keys of a small table that splits again and again,
// under network faults. Clients die, also amid insertions and splits, and come back.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::krcore::race {

fuzz::Scenario race_scenario();

}  // namespace pyrdma::krcore::race
