// The scenarios of groups whose views change, and of logged topics.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::spindle {

fuzz::Scenario group_scenario();
fuzz::Scenario logs_scenario();

}  // namespace pyrdma::spindle
