// The scenarios of groups whose views change, and of logged topics.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::spindle {

/// What no scenario of groups has.
inline const fuzz::FaultsLeftOutList kLeftOutOfGroups{
    {{Fault::placement_reorder},
     "the algorithm rests on the order of one queue pair's writes (section 2.2)"},
    {{Fault::corruption}, "no datagrams are used"},
    {{Fault::dc_storm}, "no queue pair is connected dynamically"},
    {{Fault::malformed}, "a request that is wrong before the post writes other bytes"},
    {{Fault::cq_overrun, Fault::memory_pressure, Fault::region_revoked},
     "a member that it meets ends with an error"}};

fuzz::Scenario group_scenario();
fuzz::Scenario logs_scenario();

}  // namespace pyrdma::spindle
