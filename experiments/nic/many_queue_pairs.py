"""Requests of 32 threads to one NIC against their queue pairs, up to thousands."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

THREADS = 32


def measure(point: Point) -> Any:
    """Measure the rate; a thread posts to its queue pairs in turn.

    The source states neither size nor window: 8 B, and 32 in flight as in its other loads.
    """
    return _load.rate(
        point,
        nodes=2,
        warmup=2 * _load.SPAN,
        op=point["op"],
        size=8,
        threads=THREADS,
        qps=point["queue_pairs"] // THREADS,
        depth=32,
        batch=1,
        signal_every=1,
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="queue_pairs",
    xlabel="Queue pairs",
    ylabel="Requests (M/s)",
    by="op",
    names={"read": "READ", "write": "WRITE"},
    log="x",
)

experiment = _sweep.experiment(
    "many_queue_pairs",
    "Requests of one ConnectX-6 to another against queue pairs",
    "cx6",
    measure,
    _sweep.lines("many_queue_pairs", CHART),
)
