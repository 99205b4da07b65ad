// The workloads and fuzz scenarios of LOCO.
#include "systems/system.h"

#include "systems/loco/fuzz/loco_scenario.h"
#include "systems/loco/fuzz/store_scenarios.h"
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

Metrics of node 0, of 4: ``outcome|SHAPE|LEVEL|VALUES``, how often seen; ``shapes``; ``rounds``;
``beyond``, outcomes of late or repeated operations and forbidden ones: LOCO has none.)"},
              {"loco_lock", make_lock,
               R"(Every thread of every node counts one word up, under one lock at node 0.

The run fails when an increment was lost. Latency ``critical_section``: from the end of one to the
end of the next.)"},
              {"loco_power", make_power,
               R"(The control loop of DC/DC converters: node 0 controls, every other node converts.

Metrics of node 0, relative to the wanted voltage: ``start_peak``, the most in the first
millisecond; of the second half of the run ``ripple``, most minus least, and ``deviation``, root
mean square; and ``voltage/NS`` for each turn of the controller in ``trace_ns``. Metric of every
node: ``late_turns``, turns of its loop that began a period late.)"},
              {"loco_transactions", make_transactions,
               R"(Threads transfer between two accounts drawn at random, under the locks of both.

The run fails when the sum of all accounts has changed. Latency ``transaction``.)"},
              {"loco_ycsb", make_ycsb,
               R"(Threads look up and change keys of a store, several operations in flight (figure 5).

Latencies ``lookup``, ``update``, ``insert`` and ``remove``. Metrics: ``index``, bytes of a node's
index; ``early_ops``, operations in the first half of the measured time, which tells whether the
run was in a steady state. The run fails when a lookup or update misses a key that must be there.)"},
          },
      .scenarios = {channels_scenario(), locks_scenario(), store_scenario(), sherman_scenario()},
  };
}

}  // namespace pyrdma::loco
