"""Requests of 64 B to the host's memory or the NIC's, to distinct addresses or one."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point


def measure(point: Point) -> Any:
    """Measure 12 threads that post 32 requests with one doorbell, and wait for all of them."""
    return _load.rate(
        point,
        nodes=2,
        op=point["op"],
        size=64,
        threads=12,
        depth=32,
        batch=32,
        signal_every=1,
        device_memory=point["memory"] == "device",
        region_bytes=64 if point["address"] == "same" else 0,
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="memory",
    xlabel="Memory",
    ylabel="Requests (M/s)",
    by="op",
    panels=("address",),
    names={
        "read": "READ",
        "write": "WRITE",
        "same": "one address",
        "distinct": "an address for each thread",
    },
)

experiment = _sweep.experiment(
    "inbound",
    "Requests to host or device memory of a ConnectX-6",
    "cx6",
    measure,
    _sweep.lines("inbound", CHART),
)
