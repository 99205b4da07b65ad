"""The latency of LOCO's barrier, by the code of figure 1b; the paper prints no numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.loco import _locks
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PERCENTILES = {"barrier_mean": "mean", "barrier_p50": "median", "barrier_p99": "99th percentile"}


def measure(point: Point) -> Any:
    """Measure each wait of every node."""
    load = workload.LocoBarrier(polling=_locks.polling(point), warmup_ns=50_000)
    with point.cluster(nodes=point["nodes"]) as cluster:
        seconds = 300e-6 if point.fabric == "sim" else 0.1
        waits = cluster.run(load, duration_s=point.duration(seconds, 5 * seconds)).latency(
            "barrier"
        )
    return {
        "barrier_mean": (waits.mean, "ns"),
        "barrier_p50": (waits.percentile(50), "ns"),
        "barrier_p99": (waits.percentile(99), "ns"),
    }


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no claims here
    """Draw the latency against the number of nodes."""
    fig, ax = figures.new()
    for number, (metric, name) in enumerate(PERCENTILES.items()):
        figures.line(ax, data, metric, "nodes", unit="us", label=name, first=number)
    _axes.from_zero(ax)
    _axes.layer(ax)
    ax.set(xlabel="Nodes, one thread each", ylabel="Latency of a barrier (µs)")
    ax.set_xticks(data.values_of("nodes"))
    ax.legend()
    return fig


experiment = Experiment(
    id="loco/fig1b",
    title="Latency of a barrier against the number of nodes",
    profile="c6525-25g",
    axes={"nodes": Axis([2, 4, 8], full=[2, 3, 4, 5, 6, 7, 8, 12, 16])},
    measure=measure,
    figure=figure,
)
