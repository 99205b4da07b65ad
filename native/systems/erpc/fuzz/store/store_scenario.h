// The ordered store over RPCs under faults of the network: node 0 serves it, the others put, get,
// erase and scan. Histories with all of these must be those of one map (check/README.md).
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::erpc {

/// A run needs LMDB.
fuzz::Scenario store_scenario();

}  // namespace pyrdma::erpc
