// The workloads and fuzz scenarios of KRCore.
#include "systems/system.h"

#include "systems/krcore/fuzz/krcore_scenario.h"
#include "systems/krcore/race/fuzz/race_scenario.h"
#include "systems/krcore/scopes.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

systems::System description();

systems::System description() {
  return {
      .name = "krcore",
      .workloads =
          {
              {"krcore_connect", make_connect,
               R"(Clients connect virtual queue pairs to one server (KRCore, section 5.1).

Node 0 is the server and a meta server. Latency: ``connect``. Metrics of clients: ``ops``, ``rate``.
Metrics of nodes: ``meta_reads``, ``metadata_requests``, and what the service has counted.)"},
              {"krcore_mesh", make_mesh,
               R"(Workers on all nodes connect to each other (KRCore, section 5.1).

Latency: ``worker``, from the common begin until a worker has connected all its queue pairs.
Metrics: ``finished`` of each worker; ``meta_reads`` of a node.)"},
              {"krcore_one_sided", make_one_sided,
               R"(Clients read or write through virtual queue pairs (KRCore, section 5.2).

The first `servers` nodes have the memory. Latencies: ``read`` or ``write``, of a list. Metrics of
clients: ``ops``, ``rate``, in requests.)"},
              {"krcore_echo", make_echo,
               R"(Clients send messages that a server sends back (KRCore, section 5.2).

Node 0 is the server. Latency: ``echo``, of all messages of a batch. Metrics of clients: ``ops``,
``rate``, in messages.)"},
              {"krcore_batch", make_batch,
               R"(A client reads from many nodes at once (KRCore, section 5.2, figure 14a).

Node 0 is the client. Latency: ``batch``. Metrics: ``polled_queues``, completion queues that a round
of polls visits.)"},
              {"krcore_race", make_race,
               R"(Clients use a RACE table on storage nodes (KRCore, section 5.3.1).

The first `storage_nodes` nodes have the table. Latencies: ``get``, ``update``. Metrics of clients:
``ops``, ``rate``, ``missing`` keys.)"},
              {"krcore_spike", make_spike,
               R"(Processes start, connect to a RACE table and look keys up (KRCore, section 5.3.1).

Metrics of workers: ``ready`` after the spike; ``burst_ns/MS``, the time of the burst that began MS
milliseconds after the spike. Latency: ``get``.)"},
              {"krcore_lite", make_lite,
               R"(Threads of one node read other nodes' memory through LITE (KRCore, section 5.2).

Latency: ``read`` or ``write``, of all operations of a window. Metrics of threads: ``ops``, ``rate``,
``failed_threads``. Metrics of node 0: ``connections``, ``failed_queue_pairs`` and ``first_failure``,
which is since the common begin of the threads.)"},
              {"krcore_lite_connect", make_lite_connect,
               R"(Clients connect to one server through LITE, without a cache (KRCore, section 5.1).

Node 0 is the server. Latency: ``connect``. Metrics of clients: ``ops``, ``rate``. Metrics of nodes:
``connections``, ``memory`` by the paper's count.)"},
              {"krcore_ring", make_ring,
               R"(An application behind a daemon's ring reads another node's memory in batches.

Node 0 has the memory, node 1 the daemon and the application. Not on simulated nodes. Latency:
``call``. Metrics: ``ops``, ``rate``, in slots.)"},
              {"krcore_transfer", make_transfer,
               R"(A function hands a payload to one that starts on another node (KRCore, section 5.3.2).

Node 0 has the first function. Latencies: ``sender``, until the payload can be read; ``receiver``,
from the start of its function until it has the payload.)"},
          },
      .scenarios = {service_scenario(), race::race_scenario()},
      .scopes = scope::all,
      .libraries = {},
  };
}

}  // namespace pyrdma::krcore
