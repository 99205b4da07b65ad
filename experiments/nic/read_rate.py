"""READ by threads, queue pairs and window: six machines load each other.

A thread has a queue pair to each of its peers' `vms`. One request in `signal_every` of each is
signaled, and the thread sees the data of all in its memory.
"""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

MACHINES = 6


def measure(point: Point) -> Any:
    """Measure one machine's rate."""
    return _load.each_to_all(
        point,
        nodes=MACHINES,
        queue_pairs=(MACHINES - 1) * point["vms"],
        op="read",
        size=point["size"],
        threads=point["threads"],
        depth=point["depth"],
        signal_by="queue_pair",
        signal_every=point["signal_every"],
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="depth",
    xlabel="Reads in flight per thread",
    ylabel="READ of a machine (M/s)",
    by="threads",
    panels=("vms", "size", "signal_every"),
    names={1: "5 queue pairs per thread", 15: "75 queue pairs per thread"}
    | {("signal_every", n): f"1 in {n} signaled" for n in (4, 16, 64)}
    | {size: f"{size} B" for size in (32, 48, 384)}
    | {threads: f"{threads} threads" for threads in (2, 4, 8, 11, 14, 28)},
)

experiment = _sweep.experiment(
    "read_rate",
    "READ, six Connect-IB machines to each other, by threads, queue pairs and window",
    "cib",
    measure,
    _sweep.lines("read_rate", CHART),
)
