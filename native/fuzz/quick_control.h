// Sets the times of the control path to at most those of the fastest NIC of the testbeds, so that
// set-up and recovery of connections fit into a run. On slower NICs they take milliseconds, which
// the scenarios do not test.
#pragma once
#include "fabric/sim/profile.h"

namespace pyrdma::fuzz {

void hasten_control_path(fabric::sim::SimProfile& profile);

}  // namespace pyrdma::fuzz
