"""Memory of the shared state table: slots and state columns (section 4.1.2).

A node's table is the memory that it registers. One more subgroup adds its slots and columns of
state in the row of each member. Twice the slots tell slots and columns apart. Most columns are for
changes of the view: they have words for each sender. The paper does not count those, so the number
of senders tells them from the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 16
TENS = 20  # subgroups
FEW_HUNDRED_MB = 500
SUBGROUPS = (1, 9)  # 8 more: their columns are whole cache lines
LAYOUT = "the table has a slot of 8 bytes and the message for each message of each window"


def table(point: Point, nodes: int, **load: Any) -> float:
    """Return the bytes that node 0 registers."""
    result = _multicast.run(point, nodes, preset="paper", messages=1, **load)
    return _multicast.by_node(result, "table_bytes")[0]


def columns(point: Point, nodes: int, senders: str) -> float:
    """Return the bytes of a row that one more subgroup adds."""
    added = []
    for window in (8, 16):  # slots of 16 bytes fill whole cache lines
        few, many = (
            table(point, nodes, senders=senders, window=window, max_message=8, subgroups=count)
            for count in SUBGROUPS
        )
        added.append((many - few) / (SUBGROUPS[1] - SUBGROUPS[0]))
    return (2 * added[0] - added[1]) / nodes


def measure(point: Point) -> Any:
    """Measure the memory of a subgroup with full slots, and the columns of one with tiny ones."""
    nodes = point["nodes"]
    one, two = (table(point, nodes, window=_multicast.WINDOW, subgroups=n) for n in (1, 2))
    all_send, one_sends = (columns(point, nodes, senders) for senders in ("all", "one"))
    of_sender = (all_send - one_sends) / (nodes - 1)
    return {
        "slot_memory": (two - one, "B"),
        "sst_state_bytes_per_row": (one_sends - of_sender, "B"),
        "view_bytes_per_row": (nodes * of_sender, "B"),
    }


def of_tens(data: Data, claim: Claim) -> Decision:
    """Decide whether the slots of 20 subgroups take at most 500 MB."""
    found = TENS * data.value("slot_memory", claim.unit, nodes=NODES)
    return Decision(found <= FEW_HUNDRED_MB, f"{found:.0f} MB for {TENS} subgroups")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the slots' memory over the members, with the paper's example."""
    fig, ax = figures.new()
    figures.line(ax, data, "slot_memory", "nodes", unit="MB", label="one subgroup")
    example = claims["spindle/mem_slots_16_members"]
    figures.overlay(ax, [(example, NODES)], unit="MB", names={"spindle": "16 members"})
    _multicast.finish(ax, data, "Memory of the slots (MB)")
    ax.legend(title="100 slots of 10 KB")
    return fig


experiment = Experiment(
    id="spindle/sec4_1_2_memory",
    title="Memory footprint of SST and slots",
    profile="spindle",
    axes={"nodes": Axis([2, 4, 8, NODES])},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/mem_slots_16_members": decide.by_construction(
            decide.value("slot_memory", nodes=NODES), LAYOUT
        ),
        "spindle/mem_state_columns": decide.value("sst_state_bytes_per_row", nodes=NODES),
        "spindle/mem_tens_of_subgroups": decide.by_construction(of_tens, LAYOUT),
    },
    misses={
        "spindle/mem_state_columns": "a third column of 8 bytes announces messages and nulls by "
        "the number of sent rounds, after the slots (native/systems/spindle/subgroup.h)",
    },
)
