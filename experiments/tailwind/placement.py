"""Primaries that write to a backup against the size of the cluster, by placement.

Not in the paper, which says that connections grow with the replica group. That holds when replicas
lie in groups; at random a server soon has a connection with every other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _store
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACEMENTS = {"random": "random", "best_of_five": "best of five", "groups": "groups of four"}


def measure(point: Point) -> Any:
    """Fill small segments, so that each server has many replicas."""
    servers = point["servers"]
    result = _store.run(
        point,
        2,
        1.0,
        "tailwind",
        servers=servers,
        placement=point["series"],
        segment_bytes=64 << 10,
        keys=servers * 10_000,
        log_bytes=16 << 20,
        preload="replicated",
        workers=1,
        buffers=256,
        seconds=0.0005,
    )
    found = [s.value for s in result.samples if s.metric == "log_connections"]
    return {
        "connections": (sum(found) / len(found), "count"),
        "most_connections": (max(found), "count"),
    }


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - not in the paper
    """Draw a line for each placement."""
    fig, ax = figures.new()
    for number, (placement, name) in enumerate(PLACEMENTS.items()):
        found = data.series("connections", "servers", series=placement)
        ax.plot(list(found.index), list(found), label=name, **figures.style_of(number))
    ax.set(xlabel="Servers", ylabel="Connections of a backup for logs")
    _axes.from_zero(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="tailwind/placement",
    title="Connections against the size of the cluster",
    profile="r320",
    axes={
        "series": Axis(list(PLACEMENTS)),
        "servers": Axis([4, 8, 16], full=[4, 8, 16, 24, 32]),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
)
