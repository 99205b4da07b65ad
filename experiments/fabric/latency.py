"""Latency of one request by size, for every operation and transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.fabric import _perftest
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPS = ("write", "read", "send", "write_imm", "fetch_add", "compare_swap")


def measure(point: Point) -> Any:
    """Measure one client and one server, until the completion."""
    load = workload.VerbsLoad(
        op=point["op"], transport=point["transport"], size=point["size"], mode="latency"
    )
    with point.cluster(nodes=2) as cluster:
        seconds = 300e-6 if point.fabric == "sim" else 0.02
        result = cluster.run(load, duration_s=point.duration(seconds, 10 * seconds))
    # One metric name for all operations lets them share an axis.
    found = result.latency(point["op"])
    return {
        "latency_p50": (found.percentile(50), "ns"),
        "latency_p99": (found.percentile(99), "ns"),
        "latency_p999": (found.percentile(99.9), "ns"),
        "latency_mean": (found.mean, "ns"),
        "latency_count": (float(found.count), "count"),
    }


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no claims here
    """Draw the median, with bars up to the 99th percentile, one panel per transport."""
    transports = [t for t in _perftest.CARRIED if t in data.values_of("transport")]
    fig, panels = figures.new(1, len(transports), squeeze=False, sharey=True)
    for ax, transport in zip(panels[0], transports, strict=True):
        drawn = [
            op for op in OPS if op in set(data.select("latency_p50", transport=transport)["op"])
        ]
        for op in drawn:
            where: dict[str, Any] = {"op": op, "transport": transport}
            first = OPS.index(op)
            figures.line(ax, data, "latency_p50", "size", unit="us", label=op, first=first, **where)
            median = data.series("latency_p50", "size", "us", **where)
            above = data.series("latency_p99", "size", "us", **where) - median
            ax.errorbar(
                median.index.to_list(),
                median.to_list(),
                [[0] * len(above), above.to_list()],
                fmt="none",
                ecolor=figures.style_of(first)["color"],
                elinewidth=0.8,
                capsize=2,
            )
        ax.set_xscale("log", base=2)
        _axes.logarithmic(ax)
        _axes.layer(ax)
        ax.set(title=transport.upper(), xlabel="Size (B)")
    panels[0][0].set_ylabel("Latency until completion (µs)")
    figures.legend_below(list(panels[0]), "median; bars reach to the 99th percentile")
    return fig


experiment = Experiment(
    id="fabric/latency",
    title="Latency of one request against its size",
    profile="d6515",
    axes={
        "transport": Axis(["rc", "uc", "ud"]),
        "op": Axis(["write", "read", "send", "fetch_add"], full=OPS),
        "size": Axis([8, 512, 4096, 65536], full=_perftest.sizes(1 << 20), unit="B"),
    },
    where=_perftest.possible,
    measure=measure,
    figure=figure,
)
