// The workloads and fuzz scenarios of eRPC.
#include "systems/system.h"

#include "systems/erpc/fuzz/erpc_scenario.h"
#include "systems/erpc/fuzz/raft/raft_scenario.h"
#include "systems/erpc/fuzz/replicas/replicas_scenario.h"
#include "systems/erpc/fuzz/store/store_scenario.h"
#include "systems/erpc/ordered_store/ordered_store.h"
#include "systems/erpc/raft/member.h"
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
              {"erpc_raft", make_raft,
               R"(Clients put and get keys of a store that Raft replicates (eRPC, section 7.1).

The first `replicas` nodes are members of the group, all others are clients. Latencies: ``put`` and
``get`` at the clients, ``commit`` at the leader, from the arrival of a command until it is applied.
Metrics of clients: ``tries``. Metrics of members: ``entries`` of the log, ``elections_won``,
``raft_messages``, ``raft_not_sent``, ``retransmissions``. A member that is killed and started again
goes on from its disk. One that has no disk, or has lost it, must be removed from the group and added
again, by ``Member::remove``, ``add`` and ``assign`` of native code. Needs Debian's libraft2.)",
               /*survives=*/true},
              {"erpc_store", make_store,
               R"(Node 0 serves an ordered store over RPCs, and the other nodes read it (eRPC, section 7.2).

Gets run in the dispatch threads of node 0; scans and puts run in its worker threads. Every response
is checked. Latencies ``get``, ``scan`` and ``put``. Metrics: ``retransmissions`` of each client's
thread, ``handled`` requests of each dispatch thread of node 0. Node 0 needs LMDB.)"},
          },
      .scenarios = {rpc_scenario(), raft::raft_scenario(), replicas_scenario(), store_scenario()},
      .scopes = scope::all,
      .libraries = {{"libraft", "libraft-dev", /*at_build=*/true, raft::raft_problem},
                    {"LMDB", "liblmdb0", /*at_build=*/false, ordered_store_problem}},
  };
}

}  // namespace pyrdma::erpc
