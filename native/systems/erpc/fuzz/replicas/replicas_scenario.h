// The replicated store over RPCs: members on disks, and clients, all of which crash and start again
// while the network, the disks and the clocks err. The scenario judges the histories of the
// clients, and Raft's properties after each step.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::erpc {

/// A run needs libraft.
fuzz::Scenario replicas_scenario();

}  // namespace pyrdma::erpc
