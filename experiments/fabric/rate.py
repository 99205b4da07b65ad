"""Small requests per second, along each of perftest's axes from one base point."""

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

BASE = {"size": 8, "depth": 64, "qps": 1, "threads": 1, "inline": 1, "signal_every": 16}
"""Base point of every axis; the product of all axes would have thousands of points."""
LABELS = {
    "size": "Size (B)",
    "depth": "Requests in flight per thread",
    "qps": "Queue pairs per thread",
    "threads": "Threads",
    "signal_every": "Requests per signaled one",
    "inline": "Inline (0 no, 1 yes)",
}


def where(params: Mapping[str, Any]) -> bool:
    """Keep possible points that differ from the base along at most one axis."""
    away = sum(params[name] != value for name, value in BASE.items())
    if params["inline"] == 0 and params["op"] not in ("write", "send"):
        return False
    return away <= 1 and _perftest.possible(params)


def measure(point: Point) -> Any:
    """Measure one client node against one server."""
    carries = point["op"] in ("write", "send")
    load = workload.VerbsLoad(
        op=point["op"],
        transport=point["transport"],
        size=point["size"],
        depth=point["depth"],
        batch=min(16, point["depth"]),
        qps=point["qps"],
        threads=point["threads"],
        inline=(-1 if point["inline"] else 0) if carries else 0,
        signal_every=min(point["signal_every"], point["depth"]),
        server_threads=point["threads"],
    )
    with point.cluster(nodes=2) as cluster:
        seconds = 200e-6 if point.fabric == "sim" else 0.02
        return cluster.run(load, duration_s=point.duration(seconds, 10 * seconds))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no claims here
    """Draw one panel per swept axis."""
    swept = [name for name in LABELS if len(data.values_of(name)) > 1] or ["size"]
    columns = min(3, len(swept))
    rows = -(-len(swept) // columns)
    fig, panels = figures.new(rows, columns, squeeze=False, sharey=True)
    ops = [op for op in ("write", "read", "send", "fetch_add") if op in data.values_of("op")]
    for ax, name in zip(panels.flat, swept, strict=False):
        fixed: dict[str, Any] = {key: v for key, v in BASE.items() if key != name}
        for number, op in enumerate(ops):
            rows_here = data.select("rate", op=op, transport="rc", **fixed)
            if rows_here[name].nunique() > min(1, len(data.values_of(name)) - 1):
                figures.line(
                    ax,
                    data,
                    "rate",
                    name,
                    unit="Mop/s",
                    label=op,
                    first=number,
                    op=op,
                    transport="rc",
                    **fixed,
                )
        if name != "inline":
            ax.set_xscale("log", base=2)
            ax.set_xticks(data.values_of(name), [str(v) for v in data.values_of(name)])
            ax.minorticks_off()
        else:
            ax.set_xticks([0, 1])
        _axes.logarithmic(ax)
        _axes.layer(ax)
        ax.set_xlabel(LABELS[name])
    for ax in panels.flat[len(swept) :]:
        ax.set_visible(False)
    for row in panels:
        row[0].set_ylabel("Rate (M requests/s)")
    used = panels.flat[: len(swept)]
    figures.legend_below(list(used))
    return fig


experiment = Experiment(
    id="fabric/rate",
    title="Small requests per second, along each axis",
    profile="d6515",
    axes={
        "transport": Axis(["rc"], full=["rc", "uc", "ud"]),
        "op": Axis(["write", "read", "send", "fetch_add"]),
        "size": Axis([8, 64, 512], full=[8, 16, 32, 64, 128, 256, 512, 1024], unit="B"),
        "depth": Axis([1, 16, 64], full=[1, 2, 4, 8, 16, 32, 64, 128]),
        "qps": Axis([1, 8], full=[1, 2, 4, 8, 16, 32]),
        "threads": Axis([1, 4], full=[1, 2, 4, 8, 16]),
        "inline": Axis([0, 1]),
        "signal_every": Axis([1, 16], full=[1, 4, 16]),
    },
    where=where,
    measure=measure,
    figure=figure,
)
