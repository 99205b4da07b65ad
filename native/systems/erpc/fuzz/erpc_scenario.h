// eRPC under faults: endpoints of all nodes are clients and servers at once. Nodes crash and come
// back, sessions and endpoints are ended and made again. The scenario checks the properties E1 to
// E8 of an RPC.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::erpc {

/// What no scenario of RPCs has.
inline const fuzz::FaultsLeftOutList kLeftOutOfRpcs{
    {{Fault::ack_loss, Fault::late_completion, Fault::placement_reorder, Fault::torn_crash,
      Fault::region_revoked},
     "RPCs use datagrams, which have no responses and no place at their target"},
    {{Fault::dc_storm}, "no queue pair is connected dynamically"},
    {{Fault::malformed}, "a request that is wrong before the post sends other bytes"},
    {{Fault::cq_overrun}, "an endpoint whose completion queue overruns ends with an error"}};

fuzz::Scenario rpc_scenario();

}  // namespace pyrdma::erpc
