"""Runs of `erpc_store` on the paper's cluster for section 7.2.

Each hyper-thread of the server counts as a core here, because the simulated cores have one thread
each. So the server has more of each cycle than the paper's, whose threads share 8 cores by two.
"""

from __future__ import annotations

from typing import Any

from pyrdma import Point, workload

__all__ = ["DISPATCH_ONLY", "WORKERS", "measure"]

WORKERS, DISPATCH_ONLY = "eRPC_workers", "eRPC_dispatch_only"
HYPER_THREADS = 16
SPLIT = {WORKERS: (14, 2), DISPATCH_ONLY: (HYPER_THREADS, 0)}
"""Dispatch threads and worker threads of the server."""
KEYS = 1_000_000
WARMUP_NS = 500_000
"""The clients begin at one moment, and their requests arrive together until they have spread."""
CLIENTS = 8  # nodes


def measure(
    point: Point, series: str, in_flight: int, clients: int = CLIENTS, threads: int = 8
) -> dict[str, tuple[float, str]]:
    """Measure the server under the requests of all threads of `clients` nodes."""
    dispatch, workers = SPLIT[series]
    load = workload.ErpcStore(
        preset="paper",
        server_threads=dispatch,
        workers=workers,
        threads=threads,
        keys=KEYS,
        in_flight=in_flight,
        warmup_ns=WARMUP_NS,
    )
    cores = {"cores_per_node": HYPER_THREADS} if point.fabric == "sim" else {}
    options: dict[str, Any] = {"nodes": 1 + clients, **cores}
    quick, full = (2e-3, 20e-3) if point.fabric == "sim" else (0.05, 0.5)
    span = point.duration(quick, full)
    with point.cluster(**options) as cluster:
        result = cluster.run(load, duration_s=span, timeout_s=7200)
    gets, scans = result.latency("get"), result.latency("scan")
    return {
        "get_rate": (gets.count / span, "op/s"),
        "get_latency_p50": (gets.percentile(50), "ns"),
        "get_latency_p99": (gets.percentile(99), "ns"),
        "scan_latency_p50": (scans.percentile(50), "ns"),
    }
