"""DC: READ of 32 B to a new target each time, by queue pairs of a thread; five machines."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

MACHINES = 5


def measure(point: Point) -> Any:
    """Measure one machine's rate; a thread posts to its queue pairs in turn."""
    return _load.rate(
        point,
        nodes=MACHINES,
        machines=MACHINES,
        servers=0,
        pattern="all",
        op="read",
        transport="dc",
        size=32,
        threads=14,
        qps=point["queue_pairs"],
        depth=point["depth"],
        batch=1,
        signal_every=1,
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="queue_pairs",
    xlabel="Queue pairs of a thread",
    ylabel="READ of a machine (M/s)",
    by="depth",
    names={16: "16 in flight per thread", 32: "32 in flight per thread"},
    log="x",
)

experiment = _sweep.experiment(
    "dc",
    "DC on Connect-IB: a new target for each request",
    "cib",
    measure,
    _sweep.lines("dc", CHART),
)
