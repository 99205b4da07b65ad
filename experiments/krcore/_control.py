"""Connect to one server: verbs does all steps, LITE keeps device and memory (2.3, 5.1)."""

from __future__ import annotations

from typing import Any

from pyrdma import Point, workload

CLIENT_NODES = 10  # as in the one-sided experiments; the server is one more node
SERIES = ("verbs", "LITE")
PHASES = ("open", "create_pd", "register", "create_cq", "create_qp", "handshake", "configure")
PAPER_PHASES = {
    "Init": ("open", "create_pd", "register"),
    "Create": ("create_cq", "create_qp"),
    "Handshake": ("handshake",),
    "Configure": ("configure",),
}
"""The paper's four phases, each with our steps (footnote 2 of section 2.3.1)."""
WHY_NOT = {"shm": "shared memory has no NIC that sets queue pairs up"}


def connect(point: Point, clients: int, series: str, seconds: float, warmup_s: float = 0.0) -> Any:
    """Let `clients` connect repeatedly for `seconds`; LITE skips the driver's start.

    Both keep their connections: the paper counts what a server creates, not what it destroys.
    """
    load = workload.ControlPath(
        clients=clients,
        skip_open=series == "LITE",
        keep=True,
        warmup_ns=int(warmup_s * 1e9),
        iterations=0,
    )
    with point.cluster(nodes=1 + min(clients, CLIENT_NODES)) as cluster:
        return cluster.run(load, duration_s=seconds)


def virtual(
    point: Point, clients: int, cached: bool = False, duration: tuple[float, float] = (1e-3, 10e-3)
) -> Any:
    """Let `clients` connect virtual queue pairs repeatedly, to node 0, the only meta server."""
    load = workload.KrcoreConnect(clients=clients, cached=cached, warmup_ns=100_000)
    with point.cluster(nodes=1 + min(clients, CLIENT_NODES)) as cluster:
        return cluster.run(load, duration_s=point.duration(*duration))


def one(point: Point, series: str) -> float:
    """Return the mean time of a connection in nanoseconds; the metadata are not cached."""
    if series == "KRCore":
        return float(virtual(point, 1).latency("connect").mean)
    return float(connect(point, 1, series, point.duration(0.1, 1.0)).latency("connect").mean)


def total(result: Any, metric: str) -> float:
    """Return the sum of a metric over the nodes and threads."""
    return float(sum(s.value for s in result.samples if s.metric == metric))
