"""The rows of ``pyrdma bench`` that compare eRPC with UCX, gRPC and a copy in memory.

Client and server are two processes over shared memory, each on a CPU of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from pyrdma.bench import peers
from pyrdma.bench.benchmark import Benchmark, Better, PeerRun
from pyrdma.bench.peer import Availability

__all__ = ["LARGE", "benchmarks", "memcpy_bandwidth"]

LARGE = 8 << 20
"""Size of a large request, in bytes."""

Measure = Callable[[], float]


def memcpy_bandwidth(duration_s: float = 0.3) -> float:
    """Return bytes per second of one thread that copies `LARGE` bytes again and again."""
    import pyrdma as rd

    load = rd.workload.Memcpy(size=LARGE, warmup_ns=50_000_000)
    with rd.Cluster.local(nodes=1, fabric="shm", mode="process") as cluster:
        return float(cluster.run(load, duration_s=duration_s).value("bandwidth"))


def benchmarks(
    rate: Measure, latency_us: Measure, bandwidth: Measure, put_us: Measure
) -> list[Benchmark]:
    """Return the benchmarks, in the order of the table.

    Parameters
    ----------
    rate
        Takes a measurement of RPCs per second: 32-byte requests and responses, batches of 3.
    latency_us
        Takes the median round trip of such an RPC with one in flight, in microseconds.
    bandwidth
        Takes the bytes per second of requests of `LARGE` bytes.
    put_us
        Takes the median time of a replicated PUT, in microseconds.
    """
    ucx, grpc, etcd = (peers.load(name) for name in ("ucx_am", "grpc_calls", "etcd"))
    calls = [
        ("", ucx, "the peer: RPCs built on active messages over posix shared memory"),
        ("_grpc", grpc, "the peer: asynchronous unary calls over a Unix socket"),
    ]
    rates = [
        Benchmark(
            name=f"erpc/rpc_rate{ending}",
            unit="op/s",
            better=Better.HIGHER,
            ours=rate,
            about=(
                "RPCs of 32 bytes both ways, batches of 3, one client thread and one server "
                f"thread; {peer}."
            ),
            peer=PeerRun.of(module, "rpc_rate"),
        )
        for ending, module, peer in calls
    ]
    latencies = [
        Benchmark(
            name=f"erpc/rpc_latency{ending}",
            unit="us",
            better=Better.LOWER,
            ours=latency_us,
            about=f"Median round trip of such an RPC with one in flight; {peer}.",
            peer=PeerRun.of(module, "rpc_latency", scale=1e6),
        )
        for ending, module, peer in calls
    ]
    copies = PeerRun("memcpy", memcpy_bandwidth, lambda: Availability(True, "", ""))
    return [
        *rates,
        *latencies,
        Benchmark(
            name="erpc/bandwidth_8mib",
            unit="byte/s",
            better=Better.HIGHER,
            ours=bandwidth,
            about=(
                "Requests of 8 MiB with responses of 32 bytes; the peer: one thread that copies "
                "8 MiB within its own memory, a bound for whatever copies once."
            ),
            peer=copies,
        ),
        Benchmark(
            name="erpc/raft_put",
            unit="us",
            better=Better.LOWER,
            ours=put_us,
            about=(
                "Median PUT of one client to a store that Raft replicates on three nodes; the "
                "peer: etcd with three members, data in memory. Four processes share the CPUs."
            ),
            peer=PeerRun.of(etcd, "put_latency", scale=1e6),
        ),
    ]
