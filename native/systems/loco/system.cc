// The workloads and fuzz scenarios of LOCO.
#include "systems/system.h"

#include "systems/loco/fuzz/loco_scenario.h"
#include "systems/loco/fuzz/store_scenarios.h"
#include "systems/loco/scopes.h"
#include "systems/loco/workloads/workloads.h"

namespace pyrdma::loco {

systems::System description();

systems::System description() {
  return {
      .name = "loco",
      .workloads =
          {
              {"loco_barrier", make_barrier,
               "Every node waits at a LOCO barrier again and again (figure 1b): latency "
               "``barrier``."},
              {"loco_litmus", make_litmus,
               R"(The shapes of `Litmus` run through LOCO's objects: fenced writes, reads, atomic_vars.

Metrics of node 0 (of 4 nodes): ``outcome|SHAPE|LEVEL|VALUES``, the number of times that an outcome
was seen; ``shapes``; ``rounds``; ``beyond``, the number of late, repeated and forbidden outcomes.
LOCO shows none of these.)"},
              {"loco_lock", make_lock,
               R"(Every thread of every node increments one word under one lock at node 0.

The run fails when an increment was lost. Latency ``critical_section``: the time between the ends of
two sections.)"},
              {"loco_power", make_power,
               R"(The control loop of DC/DC converters: node 0 controls, every other node converts.

Node 0 records, relative to the wanted voltage: ``start_peak``, the maximum of the first
millisecond; ``ripple``, the maximum minus the minimum of the second half; ``deviation``, the root
mean square of the second half; ``voltage/NS``, the voltage at each iteration during ``trace_ns``.
Every node records ``late_turns``, the iterations of its loop that began at least one period
late.)"},
              {"loco_transactions", make_transactions,
               R"(Threads transfer between two accounts drawn at random, under the locks of both.

The run fails when the sum of all accounts has changed. Latency ``transaction``.)"},
              {"loco_ycsb", make_ycsb,
               R"(Threads look up and change keys of a store, several operations in flight (figure 5).

Latencies ``lookup``, ``update``, ``insert`` and ``remove``. Metrics: ``index``, bytes of a node's
index; ``early_ops``, operations in the first half of the measured time, which tells whether the
run was in a steady state. The run fails when a lookup or update misses a key that must be there.)"},
          },
      .scenarios = {channels_scenario(), locks_scenario(), store_scenario(), store_cut_scenario(),
                    sherman_scenario()},
      .scopes = scope::all,
      .libraries = {},
  };
}

}  // namespace pyrdma::loco
