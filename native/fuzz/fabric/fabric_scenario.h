// The scenario mixes all operations of the fabric between all nodes, with all faults.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

Scenario fabric_scenario();

}  // namespace pyrdma::fuzz
