"""Time of one connection more: queues, transitions and the exchange of addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.nic import _sweep
from pyrdma import Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = ("create_cq", "create_qp", "handshake", "configure")


def measure(point: Point) -> Any:
    """Measure connections of one thread whose device is open."""
    load = workload.ControlPath(clients=1, skip_open=True, iterations=8)
    with point.cluster(nodes=2) as cluster:
        result = cluster.run(load)
    found = {step: (result.latency(step).mean, "ns") for step in STEPS}
    return {"time": (sum(value for value, _ in found.values()), "ns"), **found}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the steps, and the published slope of connecting 1 to 96 queue pairs."""
    fig, ax = figures.new()
    steps = {step: [data.value(step, "ms")] for step in STEPS}
    figures.bars(ax, ["simulated"], steps, stacked=True)
    figures.overlay(ax, [(claims["nic/cx6_connect"], 0)], unit="ms")
    ax.set_ylabel("Time of a connection (ms)")
    ax.legend()
    return fig


experiment = Experiment(
    id="nic/connections",
    title="Time of one connection more of a ConnectX-6",
    profile="cx6",
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={"shm": _sweep.WHY_NOT, "verbs": _sweep.WHY_NOT},
    decides={"nic/cx6_connect": decide.value("time")},
    misses=_sweep.reasons(["nic/cx6_connect"]),
)
