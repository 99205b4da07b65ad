// Everything that the fabric offers, mixed, between all nodes, with all that can fail failing.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

Scenario fabric_scenario();

}  // namespace pyrdma::fuzz
