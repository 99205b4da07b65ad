"""Memory of connections of KRCore and of LITE (figure 15a): an account; see `_memory`.

The queue pairs of KRCore's node are counted by its service. LITE's message queues take as much
again as its connections: the paper gives the sum, and does not explain it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _memory, _misses
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma import krcore as service
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CORES = 24
MANY = 5000
NAMES = {
    "lite_queues": "LITE, with message queues",
    "lite": "LITE",
    "krcore": "KRCore",
}
LEAST = 100
"""Of LITE's memory to KRCore's, for "orders of magnitude"."""


def measure(point: Point) -> Any:
    """Count the queue pairs of a node, and the bytes for so many connections."""
    connections = int(point["connections"])
    with point.cluster(nodes=2) as cluster:
        served = service.Service(cluster)
        served.app(node=0)
        pairs = served.counters(0)["queue_pairs"]
    own = _memory.pool(round(pairs), CORES) + _memory.metadata(connections)
    lite = connections * _memory.queue_pair()
    return {
        "queue_pairs": (pairs, "count"),
        "krcore": (float(own), "B"),
        "lite": (float(lite), "B"),
        "lite_queues": (_memory.LITE_QUEUES * lite, "B"),
    }


def orders(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether LITE takes more by two orders of magnitude with 5000 connections."""
    lite, own = (data.value(m, "MB", connections=MANY) for m in ("lite", "krcore"))
    return Decision(lite >= LEAST * own, f"{lite:.0f} MB to {own:.1f} MB, {lite / own:.0f} times")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the memory over the connections."""
    fig, ax = figures.new()
    for number, (metric, name) in enumerate(NAMES.items()):
        found = data.series(metric, "connections", "MB")
        ax.plot(list(found.index), list(found), label=name, **figures.style_of(number))
    for metric, marker in zip(NAMES, "^so", strict=True):
        paper = claims[f"krcore/f15a_{metric}"]
        if paper.number is not None:
            place = paper.number * (1000 if paper.unit == "GB" else 1)
            _axes.hollow(ax, MANY, place, f"paper: {NAMES[metric]}", marker)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="Connections", ylabel="Memory (MB), computed")
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/f15a_lite": decide.by_construction(
        decide.value("lite", connections=MANY), _memory.ACCOUNTING
    ),
    "krcore/f15a_lite_queues": decide.by_construction(
        decide.value("lite_queues", connections=MANY), "twice LITE's other memory, as the paper"
    ),
    "krcore/f15a_krcore": decide.value("krcore", connections=MANY),
    "krcore/f15a_dcqps": decide.by_construction(
        decide.value("queue_pairs", connections=MANY),
        "the pool of each of 24 cores has two by default",
    ),
    "krcore/f15a_rank": decide.by_construction(orders, _memory.ACCOUNTING),
}

experiment = Experiment(
    id="krcore/fig15a",
    title="Memory of connections against LITE",
    profile="krcore",
    axes={"connections": Axis([1, 10, 100, 1000, MANY], unit="connections")},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "an account of a node of 24 cores",
        "verbs": "an account of a node of 24 cores",
    },
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
