// What the scenarios do alike around the cluster that they simulate.
#pragma once
#include <span>

#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

/// Switches all faults off but `kept`.
void keep_faults(FaultOptions& faults, std::span<const Fault> kept);

/// Draws when the faults end, from `least` on, for less than `range`, unless the options say it.
void draw_end_of_faults(Options& options, Time least, Time range);

/// The options in the simulator's words. It stops `slack` after the faults have ended.
fabric::sim::SimOptions simulation_of(const Options& options, Time slack);

/// Fills in what the simulator knows of the run that is over.
void fill_outcome(Outcome& outcome, fabric::sim::SimCluster& cluster);

}  // namespace pyrdma::fuzz
