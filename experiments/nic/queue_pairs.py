"""READ of 32 B against the queue pairs of a machine: all machines load each other.

A thread has a queue pair to each of its peers' `vms`, and every request is signaled.
"""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

THREADS = {"cib": 14, "r320": 8}


def measure(point: Point) -> Any:
    """Measure one machine's rate."""
    return _load.each_to_all(
        point,
        nodes=point["nodes"],
        queue_pairs=(point["nodes"] - 1) * point["vms"],
        op="read",
        size=32,
        threads=THREADS[point["profile"]],
        depth=point["depth"],
        signal_every=1,
    )


NAMES = {"cib": "Connect-IB", "r320": "ConnectX-3"}
CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="vms",
    xlabel="Queue pairs of a thread to each machine",
    ylabel="READ of a machine (M/s)",
    by="depth",
    panels=("profile", "nodes"),
    names=NAMES
    | {6: "6 machines", 11: "11 machines"}
    | {depth: f"{depth} in flight per thread" for depth in (8, 16, 24, 32)},
)

experiment = _sweep.experiment(
    "queue_pairs",
    "READ of 32 B against the queue pairs of a machine",
    "cib",
    measure,
    _sweep.lines("queue_pairs", CHART),
)
