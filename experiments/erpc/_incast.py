"""Incast: many clients send long requests to one server (section 6.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.erpc import _load
from pyrdma import Point
from pyrdma.result import Result

__all__ = ["DEGREES", "metrics", "run"]

DEGREES = (20, 50, 100)
WARMUP = (100e-3, 200e-3)
"""Seconds until rates have settled. After 50 ms the goodput of 20 flows is 18.6 to 23.1 Gbps by the
seed, after 100 ms 22.5 to 23.0."""
NO_RATES = 5e-3  # without congestion control: the flows' start is over
SPAN = (30e-3, 100e-3)


def run(
    point: Point, degree: int, overrides: Mapping[str, float] | None = None, **load: Any
) -> Result:
    """Send requests from `degree` nodes, one flow each, to one more node."""
    nodes = degree + 1
    warmup = NO_RATES if load.get("congestion_control") == "none" else point.duration(*WARMUP)
    settings = {
        "pattern": "incast",
        "request": _load.LARGE,
        "record_rtt": True,
        "warmup_ns": round(warmup * 1e9),
        **load,
    }
    options = {"overrides": {**_load.five_racks(nodes), **(overrides or {})}}
    return _load.run(point, nodes, point.duration(*SPAN), options, **settings)


def metrics(result: Result) -> dict[str, tuple[float, str]]:
    """Return the server's goodput and the round-trip times of packets at the clients."""
    rtt = result.latency("rtt")
    served = [s.value for s in result.samples if s.metric == "served_bandwidth"]
    return {
        "total_bandwidth": (max(served), "byte/s"),
        "rtt_p50": (rtt.percentile(50), "ns"),
        "rtt_p99": (rtt.percentile(99), "ns"),
        "retransmissions": (result.value("retransmissions"), "count"),
    }
