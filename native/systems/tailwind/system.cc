// The workloads and fuzz scenarios of Tailwind.
#include "systems/system.h"

#include "systems/tailwind/fuzz/tailwind_scenario.h"
#include "systems/tailwind/scopes.h"
#include "systems/tailwind/workloads/workloads.h"

namespace pyrdma::tailwind {

systems::System description();

systems::System description() {
  return {
      .name = "tailwind",
      .workloads =
          {
              {"tailwind_store", make_store,
               R"(Clients read and write objects of a store that replicates its log (Tailwind, section 4).

The first `servers` nodes are servers, the next one is the coordinator, all others are clients.
Latencies: ``put`` and ``get`` at the clients. Metrics of clients: ``ops``, ``rate``, ``attempts``.
Metrics of servers, from the first operation on: ``dispatch_cores`` and ``worker_cores`` that were
busy, ``replication_cores`` of workers that waited for backups, ``most_workers`` at once;
``appends``, ``replication_writes`` by RDMA, ``replication_rpcs`` with data, ``control_rpcs``,
``replicated_bytes``, ``connections``, ``log_connections`` of primaries that write here,
``log_used``, ``backup_problems``: damaged replicas and what the disk cannot take.)"},
          },
      .scenarios = {store_scenario()},
      .scopes = scope::all,
      .libraries = {},
  };
}

}  // namespace pyrdma::tailwind
