"""The benchmarks over a real device; the peer is perftest."""

from __future__ import annotations

from functools import partial
from typing import Any

from . import peers
from .benchmark import Benchmark, Better, PeerRun

__all__ = ["benchmarks"]


def _load(duration_s: float, **axes: Any) -> Any:
    import pyrdma as rd

    load = rd.workload.VerbsLoad(servers=1, warmup_ns=50_000_000, **axes)
    with rd.Cluster.local(nodes=2, fabric="verbs", mode="thread") as cluster:
        return cluster.run(load, duration_s=duration_s)


_ROUNDS, _SECONDS = 9, 0.5
"""Two runs in an emulated guest may differ by a factor of two, so the median of many counts."""


def latency_us(op: str, measure: str, duration_s: float = _SECONDS) -> float:
    """Return the median latency of 8 bytes between two nodes on the device of this machine.

    The nodes are threads. Each opens the device itself, as perftest's two processes do.
    """
    result = _load(duration_s, op=op, size=8, depth=1, mode="latency", measure=measure)
    return float(result.latency(op).percentile(50)) * 1e-3


def bandwidth(size: int, duration_s: float = _SECONDS) -> float:
    """Return bytes per second of writes from one node to another, 128 in flight."""
    result = _load(duration_s, op="write", size=size, depth=128, batch=1, signal_every=100)
    return float(result.value("bandwidth"))


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks. They run only if named, since most machines have no NIC."""
    perftest = peers.load("perftest")
    rows = [
        ("write", "pingpong", "half the median ping-pong, seen in memory"),
        ("send", "pingpong", "half the median ping-pong, by completions of receives"),
        ("read", "completion", "the median from post to completion"),
        ("fetch_add", "completion", "the median from post to completion"),
    ]
    found = [
        Benchmark(
            name=f"verbs/{op}_latency_8",
            unit="us",
            better=Better.LOWER,
            ours=partial(latency_us, op, measure),
            about=f"RC {op} of 8 bytes over the device's loopback: {about}.",
            peer=PeerRun.of(perftest, f"{op}_latency_8", scale=1e6, seconds=_SECONDS),
            opt_in=True,
            rounds=_ROUNDS,
            least=_ROUNDS,
        )
        for op, measure, about in rows
    ]
    found.append(
        Benchmark(
            name="verbs/write_bandwidth_4096",
            unit="byte/s",
            better=Better.HIGHER,
            ours=partial(bandwidth, 4096),
            about="RC writes of 4 KiB over the loopback, 128 in flight, a completion in 100.",
            peer=PeerRun.of(perftest, "write_bandwidth_4096", seconds=_SECONDS),
            opt_in=True,
            rounds=_ROUNDS,
            least=_ROUNDS,
        )
    )
    return found
