"""UC WRITE of 16 B by signalling interval: six machines load each other."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point


def measure(point: Point) -> Any:
    """Measure one machine's rate; a queue pair waits for its last signaled request."""
    return _load.each_to_all(
        point,
        nodes=6,
        queue_pairs=5,
        op="write",
        transport="uc",
        size=16,
        threads=14,
        depth=8,
        signal_by="queue_pair",
        signal_every=point["signal_every"],
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="signal_every",
    xlabel="Requests of a queue pair per signaled one",
    ylabel="UC WRITE of a machine (M/s)",
    log="x",
)

experiment = _sweep.experiment(
    "unsignaled",
    "UC WRITE of 16 B, six Connect-IB machines to each other, by signalling interval",
    "cib",
    measure,
    _sweep.lines("unsignaled", CHART),
)
