// The fuzz scenario of Tailwind: clients of a store whose servers die, come back, and are cut off.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::tailwind {

/// Puts, reads and removals of a few keys. What clients see is linearizable, the versions of a key
/// never fall, updates happen once, and after the faults everything is served and replicated again.
fuzz::Scenario store_scenario();

}  // namespace pyrdma::tailwind
