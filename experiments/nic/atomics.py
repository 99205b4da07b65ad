"""Atomics on one address and on many, in the host's memory or the NIC's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

ONE: Mapping[str, Any] = {"threads": 12, "depth": 32, "batch": 32, "region_bytes": 64}
SPREAD: Mapping[str, Any] = {"batch": 1, "addresses": "random"}
LOADS: Mapping[str, Mapping[str, Any]] = {
    "host memory, one address": ONE,
    "device memory, one address": {**ONE, "device_memory": True},
    # One MiB fits a CPU's cache, one GiB does not.
    "small memory": {**SPREAD, "threads": 8, "depth": 8, "region_bytes": 1 << 20},
    "large memory": {**SPREAD, "threads": 8, "depth": 8, "region_bytes": 1 << 30},
    "random addresses": {**SPREAD, "threads": 14, "depth": 16, "region_bytes": 8 << 20},
}
CLIENTS = {"cx6": 1, "r320": 5, "cib": 5}


def measure(point: Point) -> Any:
    """Measure the rate of atomics that one server executes."""
    nodes = 1 + CLIENTS[point["profile"]]
    load = LOADS[point["target"]]
    return _load.rate(point, nodes=nodes, op=point["op"], signal_every=1, **load)


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="target",
    xlabel="",
    ylabel="Atomics of a server (M/s)",
    by="op",
    panels=("profile",),
    names={
        "cib": "Connect-IB",
        "cx6": "ConnectX-6",
        "r320": "ConnectX-3",
        "compare_swap": "compare and swap",
        "fetch_add": "fetch and add",
    },
    log="y",
)

experiment = _sweep.experiment(
    "atomics",
    "Atomics on one address and on many",
    "cx6",
    measure,
    _sweep.lines("atomics", CHART),
)
