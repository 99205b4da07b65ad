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
