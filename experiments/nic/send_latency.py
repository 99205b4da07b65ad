"""Latency of SEND by size and MTU, between two machines back to back."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point


def measure(point: Point) -> Any:
    """Measure half of a round trip; 32 B go inline."""
    return _load.latency(
        point,
        op="send",
        transport=point["transport"],
        size=point["size"],
        inline=int(point["size"] == 32),
        overrides={"link.mtu_bytes": point["mtu"]},
    )


CHART = _sweep.Chart(
    metric="latency",
    unit="us",
    x="size",
    xlabel="Size (B)",
    ylabel="Half of a round trip (µs)",
    by="mtu",
    log="x",
)

experiment = _sweep.experiment(
    "send_latency",
    "Latency of SEND on ConnectX-4 by size and MTU",
    "cx4_direct",
    measure,
    _sweep.lines("send_latency", CHART),
)
