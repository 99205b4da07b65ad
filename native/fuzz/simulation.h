// The common steps of all scenarios around the cluster that they simulate.
#pragma once
#include <span>

#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

/// Switches off all faults but `kept`.
void keep_faults(FaultOptions& faults, std::span<const Fault> kept);

/// Draws the time at which the faults end, from `least` on and within `range`, unless the options
/// set it.
void draw_end_of_faults(Options& options, Time least, Time range);

/// Converts the options for the simulator. The simulation stops `slack` after the end of the
/// faults.
fabric::sim::SimOptions simulation_of(const Options& options, Time slack);

/// Fills in the simulator's data on the run that is over.
void fill_outcome(Outcome& outcome, fabric::sim::SimCluster& cluster);

}  // namespace pyrdma::fuzz
