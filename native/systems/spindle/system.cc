// The workloads and fuzz scenarios of Spindle.
#include "systems/system.h"

#include "systems/spindle/fuzz/spindle_scenario.h"
#include "systems/spindle/scopes.h"
#include "systems/spindle/workloads/workloads.h"

namespace pyrdma::spindle {

systems::System description();

systems::System description() {
  return {
      .name = "spindle",
      .workloads =
          {
              {"spindle_multicast", make_multicast,
               R"(Senders stream messages to all members of a group (Spindle, section 4).

Every node measures from the first message until it has delivered all. Latency ``multicast``: of
every eighth message of a sender, from the reserved slot to its own delivery. Metrics:
``delivered_bandwidth`` and ``message_rate``, averaged over the nodes (the rows of the nodes are
shares that add up to the average); ``ops``, delivered messages; ``pushes`` (multicasts of columns or
slots), ``requests``, ``nulls``, ``null_iterations``; ``send_batched`` messages in ``send_batches``,
and the same for receive and delivery; ``table_bytes``, the registered memory. Node 0 adds
``runtime`` and ``sender_wait_share``, and with `timed` the shares of posts, of active subgroups and
of upcalls.)"},
              {"spindle_dds", make_dds,
               R"(Node 0 publishes samples of one topic, and all other nodes subscribe (Spindle, section 4.6).

Metrics: ``delivered_bandwidth`` and ``message_rate``, averaged over the subscribers; ``logged_bytes``
of their logs. Latency ``sample``: of every eighth sample, from the loan at the publisher to the
listener of a subscriber, over a fabric whose nodes share a clock.)"},
              {"spindle_survivors", make_survivors,
               R"(Members multicast numbered messages, also while nodes are killed and restarted.

The others go on in a view without a dead node, and a restarted node joins them. A node that misses a
message, or delivers one twice or out of order, fails the run. Latency ``multicast``: of a member's
own messages, from the reserved slot to their delivery; the slowest ones waited for a new view.
Metrics: ``ops``, delivered messages; ``sent``; ``views`` that a node has entered; ``joins`` after a
restart or an exclusion. With `history`, ``result.history()`` has all views and deliveries of the
nodes that are alive at the end.)",
               true},
          },
      .scenarios = {group_scenario(), logs_scenario()},
      .scopes = scope::all,
      .libraries = {},
  };
}

}  // namespace pyrdma::spindle
