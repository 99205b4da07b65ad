"""Control operations without network: cached connects, registration of memory (section 5.1).

A region of an application is a slice of memory that the service has registered at boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _control, _misses
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma import krcore as service
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPERATIONS = {
    "connect": "connect, cached",
    "register": "register 4 MiB",
    "create": "create a queue pair",
}


def measure(point: Point) -> Any:
    """Measure one operation, by the clock of the simulation where a script calls it."""
    operation = str(point["call"])
    if operation == "connect":
        found = _control.virtual(point, 1, cached=True).latency("connect").mean
        return {"latency": (found, "ns")}
    cluster: Any
    with point.cluster(nodes=2) as cluster:
        app = service.Service(cluster).app(node=1)
        begin = cluster.now_ns
        if operation == "register":
            app.reg_mr(4 << 20)
        else:
            app.vqp()
        return {"latency": (float(cluster.now_ns - begin), "ns")}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the times."""
    fig, ax = figures.new()
    found = [data.value("latency", "us", call=name) for name in OPERATIONS]
    figures.bars(ax, list(OPERATIONS.values()), {"measured": found})
    _axes.write_inside(ax)
    figures.overlay(
        ax,
        [(claims["krcore/qconnect_cached"], 0), (claims["krcore/mr_register_4mb"], 1)],
        unit="us",
    )
    ax.set(ylabel="Time (µs)", ylim=(0, 2))
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/qconnect_cached": decide.value("latency", call="connect"),
    "krcore/mr_register_4mb": decide.value("latency", call="register"),
}

experiment = Experiment(
    id="krcore/sec5_1_other_ops",
    title="Control operations without network",
    profile="krcore",
    axes={"call": Axis(list(OPERATIONS))},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "a process enters no kernel to call the service",
        "verbs": "a process enters no kernel to call the service",
    },
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
