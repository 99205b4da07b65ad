"""Memory of one reliable queue pair for each node, as LITE caches them: an account (2.3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _memory
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 10_000
GIBI = 2**30 / 1e9
"""The paper's 1.52 GB are GiB (ambiguity qp_memory_arithmetic)."""
WHY_NOT = {"shm": "an account needs no fabric", "verbs": "an account needs no fabric"}


def measure(point: Point) -> Any:
    """Count the bytes of a node's connections."""
    nodes = int(point["nodes"])
    return {
        "per_queue_pair": (float(_memory.queue_pair()), "B"),
        "per_node": (float(nodes * _memory.queue_pair()), "B"),
        "send_entries": (float(_memory.SEND_ENTRIES), "count"),
        "completion_entries": (float(_memory.COMPLETION_ENTRIES), "count"),
        "send_bytes": (float(_memory.SEND_BYTES), "B"),
        "completion_bytes": (float(_memory.COMPLETION_BYTES), "B"),
    }


def in_gibibytes(data: Data, claim: Claim) -> Decision:
    """Compare the memory of a node, in the unit that the paper's number has."""
    found = data.value("per_node", claim.unit, nodes=MOST)
    return Decision(None, found / GIBI, f"GiB; {found:.2f} GB")


def linear(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether each node takes the same."""
    found = data.series("per_node", "nodes", "KiB")
    each = {float(size) / float(nodes) for nodes, size in found.items()}
    return Decision(len(each) == 1, f"{max(each):g} KiB for each node")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the memory over the nodes."""
    fig, ax = figures.new()
    found = data.series("per_node", "nodes", "GB")
    ax.plot(list(found.index), list(found), label="LITE, computed", **figures.style_of(0))
    paper = claims["krcore/lite_memory_10k"]
    if paper.number is not None:
        _axes.hollow(ax, MOST, paper.number * GIBI, f"paper: {paper.number:g} GiB")
    _axes.from_zero(ax)
    ax.set(xlabel="Nodes of the cluster", ylabel="Memory of a node's connections (GB)")
    ax.legend()
    return fig


def given(metric: str) -> Any:
    """Return the decider of a number with which the account begins."""
    return decide.by_construction(decide.value(metric, nodes=MOST), _memory.INPUT)


experiment = Experiment(
    id="krcore/sec2_3_2_lite_memory",
    title="Memory of one cached queue pair for each node",
    profile="krcore",
    axes={"nodes": Axis([10, 1000, 5000, MOST], unit="nodes")},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not=WHY_NOT,
    decides={
        "krcore/qp_memory": decide.by_construction(
            decide.value("per_queue_pair", nodes=MOST), _memory.ACCOUNTING
        ),
        "krcore/sq_entries": given("send_entries"),
        "krcore/cq_entries": given("completion_entries"),
        "krcore/sq_entry_bytes": given("send_bytes"),
        "krcore/cq_entry_bytes": given("completion_bytes"),
        "krcore/lite_memory_10k": decide.by_construction(in_gibibytes, _memory.ACCOUNTING),
        "krcore/lite_memory_trend": decide.by_construction(linear, _memory.ACCOUNTING),
    },
)
