"""WRITE of 32 B by threads and window: six machines load each other, every request is signaled."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point


def measure(point: Point) -> Any:
    """Measure one machine's rate."""
    return _load.each_to_all(
        point,
        nodes=6,
        queue_pairs=5,
        op="write",
        size=32,
        threads=point["threads"],
        depth=point["depth"],
        signal_every=1,
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="threads",
    xlabel="Threads of a machine",
    ylabel="WRITE of a machine (M/s)",
    by="depth",
    names={depth: f"{depth} in flight per thread" for depth in (8, 16, 32, 48, 64)},
)

experiment = _sweep.experiment(
    "write_rate",
    "WRITE of 32 B, six Connect-IB machines to each other, by threads and window",
    "cib",
    measure,
    _sweep.lines("write_rate", CHART),
)
