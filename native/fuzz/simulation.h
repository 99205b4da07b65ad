// The common steps of all scenarios around the cluster that they simulate.
#pragma once
#include "check/history.h"
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

/// Draws the time at which the faults end, from `least` on and within `range`, unless the options
/// set it. A number of windows becomes the rate that gives as many by then, in the mean. For a
/// scenario without FaultPhase.
void draw_end_of_faults(Options& options, Time least, Time range);

/// Converts the options for the simulator. The simulation stops `slack` after the end of the
/// faults, and later by what all operations may take. FaultPhase postpones this with each step.
fabric::sim::SimOptions simulation_of(const Options& options, Time slack);

/// Has the checker of `model`, a literal, judge a history. Adds a violation of the kind `model`, or
/// an entry of Outcome::undecided if the checker gives up. Counts a check of this name. Keeps the
/// history if the options ask for it.
void judge(Outcome& outcome, const Options& options, const check::History& history,
           const char* model, Time now);

/// Fills in the simulator's data on the run that is over.
void fill_outcome(Outcome& outcome, fabric::sim::SimCluster& cluster);

}  // namespace pyrdma::fuzz
