// eRPC under faults: endpoints of all nodes are clients and servers at once. Nodes crash and come
// back, sessions and endpoints are ended and made again. The scenario checks the properties E1 to
// E8 of an RPC.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::erpc {

fuzz::Scenario rpc_scenario();

}  // namespace pyrdma::erpc
