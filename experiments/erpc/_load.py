"""Runs of `erpc_load` as the paper's section 6 loads its clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pyrdma import Point, workload
from pyrdma.result import Result

__all__ = ["BATCHES", "LARGE", "MIB", "TORS", "five_racks", "large", "one", "rate", "run"]

MIB = 1 << 20
TORS = 5  # rack switches of the CX4 cluster
BATCHES = {"request": 32, "response": 32, "batch": 3, "in_flight": 60}
"""Section 6.2: batches of 3 small requests, at most 60 requests of a thread under way."""
LARGE = 8 * MIB
"""Section 6.4: the longest request."""
WARMUP_NS = 50_000  # several round trips of a full window
LARGE_WARMUP_NS = 5_000_000  # until the rate of a session with long requests has settled


def run(
    point: Point,
    nodes: int,
    duration_s: float | None,
    cluster: Mapping[str, Any] | None = None,
    **load: Any,
) -> Result:
    """Run the paper's protocol, or the preset in `load`, on `nodes` nodes."""
    settings = {"preset": "paper", "warmup_ns": WARMUP_NS, **load}
    with point.cluster(nodes=nodes, **dict(cluster or {})) as opened:
        return opened.run(workload.ErpcLoad(**settings), duration_s=duration_s, timeout_s=7200)


def one(point: Point, **load: Any) -> Result:
    """Run one 32 B request at a time between two nodes below one switch."""
    quick, full = (300e-6, 3e-3) if point.fabric == "sim" else (0.02, 0.2)
    return run(point, 2, point.duration(quick, full), **{"pattern": "pairs", **load})


def rate(point: Point, **load: Any) -> tuple[float, str]:
    """Return the requests per second that one thread of 11 nodes issues (section 6.2).

    Each thread also serves as many.
    """
    quick, full = (0.5e-3, 5e-3) if point.fabric == "sim" else (0.05, 0.5)
    result = run(point, 11, point.duration(quick, full), **{**BATCHES, **load})
    return result.value("rate") / 11, "op/s"


def large(point: Point, size: int, **load: Any) -> tuple[float, str]:
    """Return the goodput of one client with one request of `size` bytes at a time (section 6.4).

    The mean time of a request gives it: a short measurement would count too few long requests.
    """
    settings = {"pattern": "pairs", "request": size, "warmup_ns": LARGE_WARMUP_NS, **load}
    if point.fabric == "shm":
        # On a busy machine a poller that is put aside looks like congestion, and one request may
        # take longer than any short duration. Shared memory has no link that could be congested.
        settings |= {"congestion_control": "none", "iterations": 50 if point.quick else 1000}
        duration = None
    else:
        quick, full = (10e-3, 50e-3) if point.fabric == "sim" else (0.1, 1.0)
        duration = point.duration(quick, full)
    result = run(point, 2, duration, **settings)
    return size / result.latency("rpc").mean * 1e9, "byte/s"


def five_racks(nodes: int) -> dict[str, float]:
    """Return the overrides that distribute nodes evenly over the racks of the CX4 cluster.

    The paper's racks had 14 to 27 of its 100 nodes (section 6.3). The simulator's are equal. Each
    rack has the uplinks of the profile.
    """
    return {"topology.nodes_per_tor": math.ceil(nodes / TORS)}
