// Key-value stores under faults, each by clients that change and look up few keys from all nodes at
// once: LOCO's store, whose history is linearizable (appendix C), and the model of Sherman, whose
// is if its updates are fenced (section 7.2).
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

Scenario loco_store_scenario();
Scenario sherman_scenario();

}  // namespace pyrdma::fuzz
