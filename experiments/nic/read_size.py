"""READ by size and window: six machines load each other, every request is signaled."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

THREADS = {"cib": 14, "r320": 8}


def measure(point: Point) -> Any:
    """Measure one machine's rate."""
    return _load.each_to_all(
        point,
        nodes=6,
        queue_pairs=5,
        op="read",
        size=point["size"],
        threads=THREADS[point["profile"]],
        depth=point["depth"],
        signal_every=1,
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="size",
    xlabel="Size (B)",
    ylabel="READ of a machine (M/s)",
    by="depth",
    panels=("profile",),
    names={"cib": "Connect-IB", "r320": "ConnectX-3"}
    | {depth: f"{depth} in flight per thread" for depth in (8, 16, 24, 32)},
)

experiment = _sweep.experiment(
    "read_size",
    "READ, six machines to each other, by size and window",
    "cib",
    measure,
    _sweep.lines("read_size", CHART),
)
