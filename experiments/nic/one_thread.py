"""Requests of one thread to another machine, by transport and signalling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

LOADS: Mapping[str, Mapping[str, Any]] = {
    "READ, RC": {"op": "read", "signal_every": 8},
    "READ, RC, all signaled": {"op": "read", "signal_every": 1},
    "READ, DC": {"op": "read", "transport": "dc", "signal_every": 1},
    "SEND, UD": {"op": "send", "transport": "ud", "signal_every": 1, "server_threads": 8},
}


def measure(point: Point) -> Any:
    """Measure the rate of requests of 32 B, 32 in flight."""
    load = LOADS[point["request"]]
    return _load.rate(point, nodes=2, size=32, depth=32, batch=1, **load)


CHART = _sweep.Chart(
    metric="rate", unit="Mop/s", x="request", xlabel="", ylabel="Requests of a thread (M/s)"
)

experiment = _sweep.experiment(
    "one_thread",
    "Requests of one thread of a Connect-IB machine",
    "cib",
    measure,
    _sweep.lines("one_thread", CHART),
)
