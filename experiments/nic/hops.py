"""Latency of 2 B through one switch and through three."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point


def measure(point: Point) -> Any:
    """Measure one request at a time; one node per leaf switch gives a path of three."""
    leaf = {"overrides": {"topology.nodes_per_tor": 1}} if point["switches"] == 3 else {}
    return _load.latency(point, op=point["op"], size=2, **leaf)


CHART = _sweep.Chart(
    metric="latency",
    unit="us",
    x="switches",
    xlabel="Switches of the path",
    ylabel="Latency (µs)",
    by="op",
    names={"read": "READ", "send": "SEND, half of a round trip", "write": "WRITE, half"},
)

experiment = _sweep.experiment(
    "hops",
    "Latency on HDR100 InfiniBand by switches of the path",
    "hdr100",
    measure,
    _sweep.lines("hops", CHART),
)
