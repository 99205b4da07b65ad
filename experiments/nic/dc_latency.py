"""DC: latency of READ of one thread to the same target, or to a new one each time."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point


def measure(point: Point) -> Any:
    """Measure the mean latency with 1 or 16 requests in flight."""
    servers = 1 if point["target"] == "same" else 4
    return _load.rate(
        point,
        nodes=servers + 1,
        servers=servers,
        pattern="all",
        op="read",
        transport="dc",
        size=32,
        depth=point["depth"],
        batch=1,
        signal_every=1,
        record_latency=True,
    )


CHART = _sweep.Chart(
    metric="latency",
    unit="us",
    x="depth",
    xlabel="Requests in flight",
    ylabel="Mean latency (µs)",
    by="target",
    names={"same": "same target", "new": "a new target each time"},
)

experiment = _sweep.experiment(
    "dc_latency",
    "DC on Connect-IB: latency to the same target, or a new one each time",
    "cib",
    measure,
    _sweep.lines("dc_latency", CHART),
)
