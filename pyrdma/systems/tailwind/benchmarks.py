"""Tailwind's rows of ``pyrdma bench``: a primary, its three backups, and one client.

Four servers, the coordinator and the client are threads of one process. They outnumber the cores of
a small machine, and threads give way to each other there.
"""

from __future__ import annotations

from pyrdma.bench import peers
from pyrdma.bench.benchmark import Benchmark, Better, PeerRun
from pyrdma.result import Result

__all__ = ["benchmarks", "put_latency_us", "put_rate", "put_rate_paper"]

SERVERS, REPLICAS = 4, 3
LEASE_MS = 60_000
"""Six threads share the cores, so a server may have none for long."""


def _puts(duration_s: float, in_flight: int, group_commit: bool = False) -> Result:
    import pyrdma as rd

    load = rd.workload.TailwindStore(
        servers=SERVERS,
        replicas=REPLICAS,
        workers=0,
        primaries=1,
        in_flight=in_flight,
        group_commit=group_commit,
        zipf=0.0,
        lease_ms=LEASE_MS,
        warmup_ns=100_000_000,
    )
    with rd.Cluster.local(nodes=SERVERS + 2, fabric="shm", mode="thread") as cluster:
        return cluster.run(load, duration_s=duration_s)


def put_rate(duration_s: float = 0.4) -> float:
    """Return the puts per second of one client with 128 in flight, all for one primary."""
    return float(_puts(duration_s, 128, group_commit=True).value("rate"))


def put_rate_paper(duration_s: float = 0.4) -> float:
    """Return the same with a write to each backup for each put."""
    return float(_puts(duration_s, 128).value("rate"))


def put_latency_us(duration_s: float = 0.4) -> float:
    """Return the median time of a put of one client, one at a time."""
    return float(_puts(duration_s, 1).latency("put").percentile(50)) / 1e3


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks; their names begin with the system's name."""
    redis, etcd = peers.load("redis_wait"), peers.load("etcd")
    put = "Median put of one client, one at a time, to a primary with three replicas"
    return [
        Benchmark(
            "tailwind/put_rate",
            "op/s",
            Better.HIGHER,
            put_rate,
            "Puts of 100 B with 128 in flight and `group_commit`, a primary with three replicas; "
            "the peer: Redis with three replicas, and 128 connections that WAIT for all of them.",
            PeerRun.of(redis, "put_rate"),
        ),
        Benchmark(
            "tailwind/put_rate_paper",
            "op/s",
            Better.HIGHER,
            put_rate_paper,
            "The same without `group_commit`: a write to each backup for each put.",
            PeerRun.of(redis, "put_rate"),
        ),
        Benchmark(
            "tailwind/put_latency",
            "us",
            Better.LOWER,
            put_latency_us,
            f"{put}; the peer: Redis with three replicas, and WAIT.",
            PeerRun.of(redis, "put_latency", scale=1e6),
        ),
        Benchmark(
            "tailwind/put_latency_etcd",
            "us",
            Better.LOWER,
            put_latency_us,
            f"{put}; the peer: etcd with three members, data in memory.",
            PeerRun.of(etcd, "put_latency", scale=1e6),
        ),
    ]
