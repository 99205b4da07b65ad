// The scenario of groups whose views change.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::spindle {

fuzz::Scenario group_scenario();

}  // namespace pyrdma::spindle
