"""LOCO's key-value store over shared memory; the peer is Redis with its own client."""

from __future__ import annotations

from functools import partial

from pyrdma.bench import peers
from pyrdma.bench.benchmark import Benchmark, Better, PeerRun

__all__ = ["benchmarks"]

KEYS = 100_000  # as many as the peer's


def rate(reads: float, duration_s: float = 0.4) -> float:
    """Return operations per second of two processes, one thread each, with 128 in flight.

    Keys are uniform and all present; values have 8 bytes. Half of the keys lie in the other
    process.
    """
    import pyrdma as rd

    load = rd.workload.LocoYcsb(
        reads=reads, theta=0.0, window=128, keys=KEYS, fill=1.0, warmup_ns=50_000_000
    )
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        return float(cluster.run(load, duration_s=duration_s).value("rate"))


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks."""
    redis = peers.load("redis")
    rows = [
        ("lookup", 1.0, "lookup_rate", "", "GET, 4 connections with 128 requests in flight each"),
        ("update", 0.0, "update_rate", "", "SET, 4 connections with 128 requests in flight each"),
        ("lookup", 1.0, "lookup_rate_unpipelined", "_unpipelined", "GET, 50 connections with one"),
    ]
    return [
        Benchmark(
            name=f"loco_kv/{op}_rate{ending}",
            unit="op/s",
            better=Better.HIGHER,
            ours=partial(rate, reads),
            about=(
                f"LOCO's store: {op}s of uniform keys of {KEYS}, values of 8 bytes, two processes "
                f"with 128 in flight; the peer: {peer}, server and client a process each."
            ),
            peer=PeerRun.of(redis, measurement),
        )
        for op, reads, measurement, ending, peer in rows
    ]
