// The workloads and fuzz scenarios of eRPC.
#include "systems/system.h"

#include "systems/erpc/fuzz/erpc_scenario.h"
#include "systems/erpc/scopes.h"
#include "systems/erpc/workloads/workloads.h"

namespace pyrdma::erpc {

systems::System description();

systems::System description() {
  return {
      .name = "erpc",
      .workloads =
          {
              {"erpc_baseline", make_baseline,
               R"(Threads send small requests over an RPC system that eRPC is compared with (section 6.2).

FaSST-style RPCs have one packet and neither recover losses nor control congestion. RPCs in the
style of FaRM write requests into rings of the receiver. Latency ``rpc``.)"},
              {"erpc_load", make_load,
               R"(Threads send requests in batches and keep several under way (eRPC, section 6).

Every response is compared with its request. Latencies: ``rpc``, from the call to the continuation;
``background``, of the background thread; ``rtt``, of packets, with `record_rtt`. Metrics of each
thread: ``packets_sent``, ``packets_received``, ``doorbells``, ``retransmissions``,
``rate_updates``, ``paced_packets``, ``handled`` requests, ``session_bytes`` of a session at both
ends. A node that sends no requests adds ``served_bandwidth``: its packets times the data of a full
packet, for long requests.)"},
          },
      .scenarios = {rpc_scenario()},
      .scopes = scope::all,
  };
}

}  // namespace pyrdma::erpc
