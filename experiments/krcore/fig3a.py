"""Set-up of one connection from scratch against one 8 B READ on it (section 2.3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.krcore import _control
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("verbs control", "LITE control", "verbs data")


def measure(point: Point) -> Any:
    """Measure the median time of a connection, or of a READ."""
    if point["series"] == "verbs data":
        load = workload.VerbsLoad(op="read", size=8, mode="latency")
        with point.cluster(nodes=2) as cluster:
            result = cluster.run(load, duration_s=point.duration(500e-6, 5e-3))
        return {"latency": (result.latency("read").percentile(50), "ns")}
    series = str(point["series"]).removesuffix(" control")
    result = _control.connect(point, 1, series, point.duration(0.1, 1.0))
    return {"latency": (result.latency("connect").percentile(50), "ns")}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the three times on one logarithmic axis."""
    fig, ax = figures.new()
    found = [data.value("latency", "us", series=s) for s in SERIES]
    figures.bars(ax, list(SERIES), {"measured": found}, values="{:,.1f}", log=True)
    figures.overlay(
        ax,
        [
            (claims["krcore/verbs_connect_latency"], 0),
            (claims["krcore/lite_connect_latency"], 1),
            (claims["krcore/f10a_verbs_1"], 2),
        ],
        unit="us",
        names={"verbs": "verbs", "LITE_optimized": "LITE"},
    )
    ax.set(ylabel="Time (µs)", ylim=(1, 1e5))
    ax.legend()
    return fig


experiment = Experiment(
    id="krcore/fig3a",
    title="Control path against data path for one connection",
    profile="krcore",
    axes={"series": Axis(SERIES)},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "shared memory has neither driver nor NIC to set up"},
    decides={
        "krcore/verbs_connect_latency": decide.value("latency", series="verbs control"),
        "krcore/s6_cx4_connect": decide.value("latency", series="verbs control"),
        "krcore/fig3a_ratio": decide.ratio(
            "latency", {"series": "verbs control"}, {"series": "verbs data"}
        ),
        "krcore/lite_connect_latency": decide.value("latency", series="LITE control"),
    },
)
