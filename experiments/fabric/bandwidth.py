"""Bandwidth of a stream of requests, by request size and number in flight."""

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


def measure(point: Point) -> Any:
    """Measure one client that keeps `depth` requests to one server in flight."""
    load = workload.VerbsLoad(
        op=point["op"],
        transport=point["transport"],
        size=point["size"],
        depth=point["depth"],
        qps=point["qps"],
    )
    with point.cluster(nodes=2) as cluster:
        seconds = 500e-6 if point.fabric == "sim" else 0.02
        return cluster.run(load, duration_s=point.duration(seconds, 10 * seconds))


def where(params: Mapping[str, Any]) -> bool:
    """Leave out impossible points; use several queue pairs only for reads and writes of 4 KiB."""
    several = params["qps"] == 1 or (params["size"] == 4096 and params["op"] in ("read", "write"))
    return several and _perftest.possible(params)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no claims here
    """Draw bandwidth against size, one panel per depth."""
    depths = data.values_of("depth")
    ops = [op for op in ("write", "read", "send") if op in data.values_of("op")]
    fig, panels = figures.new(1, len(depths), squeeze=False, sharey=True)
    for ax, depth in zip(panels[0], depths, strict=True):
        for number, op in enumerate(ops):
            figures.line(
                ax,
                data,
                "bandwidth",
                "size",
                unit="GB/s",
                label=op,
                first=number,
                op=op,
                depth=depth,
                qps=1,
                transport="rc",
            )
        _axes.layer(ax)
        ax.set_xscale("log", base=2)
        ax.set(title=f"{depth} in flight", xlabel="Size (B)")
        ax.legend()
    panels[0][0].set_ylabel("Bandwidth (GB/s)")
    _axes.from_zero(panels[0][0])
    return fig


experiment = Experiment(
    id="fabric/bandwidth",
    title="Bandwidth against size and depth",
    profile="d6515",
    axes={
        "transport": Axis(["rc"], full=["rc", "uc"]),
        "op": Axis(["write", "read", "send"]),
        "size": Axis([64, 1024, 4096, 65536], full=_perftest.sizes(1 << 20), unit="B"),
        "depth": Axis([1, 64], full=[1, 4, 16, 64]),
        "qps": Axis([1], full=[1, 2, 8]),
    },
    where=where,
    measure=measure,
    figure=figure,
)
