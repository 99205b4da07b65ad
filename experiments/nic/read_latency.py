"""Latency of READ of 2 B through one switch."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point


def measure(point: Point) -> Any:
    """Measure one read at a time."""
    return _load.latency(point, op="read", size=point["size"])


CHART = _sweep.Chart(
    metric="latency", unit="us", x="size", xlabel="Size (B)", ylabel="Latency of READ (µs)"
)

experiment = _sweep.experiment(
    "read_latency",
    "Latency of READ of 2 B on ConnectX-3",
    "r320",
    measure,
    _sweep.lines("read_latency", CHART),
)
