// Setting up connections takes as long as on the fastest NICs of the testbeds at most, so that it
// and recovery happen within a run: what costs milliseconds there is not what scenarios test.
#pragma once
#include "fabric/sim/profile.h"

namespace pyrdma::fuzz {

void hasten_control_path(fabric::sim::SimProfile& profile);

}  // namespace pyrdma::fuzz
