// Key-value stores under faults. Clients of all nodes change and look up few keys at once. The
// history of LOCO's store is linearizable (appendix C). The history of the model of Sherman is
// linearizable if its updates are fenced (section 7.2).
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::loco {

fuzz::Scenario store_scenario();
fuzz::Scenario sherman_scenario();
fuzz::Scenario store_cut_scenario();

}  // namespace pyrdma::loco
