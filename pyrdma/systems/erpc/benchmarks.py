"""eRPC's rows of ``pyrdma bench``.

A client and a server are a process with one thread each, and nodes of a simulation in the last row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrdma.bench.awaited import awaited_rate
from pyrdma.bench.benchmark import Benchmark, Better
from pyrdma.result import Result

from . import bench_peers

__all__ = ["benchmarks"]


def _run(duration_s: float, **settings: Any) -> Result:
    import pyrdma as rd

    load = rd.workload.ErpcLoad(pattern="pairs", warmup_ns=50_000_000, **settings)
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        return cluster.run(load, duration_s=duration_s)


def rate(duration_s: float = 0.4) -> float:
    """Return requests per second: batches of 3, 60 under way on a session with a slot for each."""
    load = _run(duration_s, batch=3, in_flight=60, slots=64, credits=64)
    return float(load.value("rate"))


def latency_us(duration_s: float = 0.3) -> float:
    """Return the median time of a request, one at a time."""
    return float(_run(duration_s).latency("rpc").percentile(50)) / 1e3


def bandwidth(duration_s: float = 0.5) -> float:
    """Return bytes per second of large requests, one at a time."""
    return float(_run(duration_s, request=bench_peers.LARGE).value("rate")) * bench_peers.LARGE


def put_us(duration_s: float = 0.5) -> float:
    """Return the median time of a PUT that Raft replicates on three nodes, one client."""
    import pyrdma as rd

    load = rd.workload.ErpcRaft(reads=0.0, warmup_ns=200_000_000)
    with rd.Cluster.local(nodes=4, fabric="shm", mode="process") as cluster:
        return float(cluster.run(load, duration_s=duration_s).latency("put").percentile(50)) / 1e3


def _awaited_call(cluster: Any) -> Callable[[Any], Any]:
    from .mesh import Echo, Mesh

    mesh = Mesh(cluster)
    mesh.serve(1, 1, Echo())
    session = mesh.connect(0, 1)

    def of_node(node: Any) -> Callable[[], Any]:
        call = node.awaits(session).call
        return lambda: call(1, b"x" * 32)

    return of_node


def call_rate() -> float:
    """Return the requests of 32 B per second of CPU time of a node program."""
    return awaited_rate(_awaited_call)


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks, in the order of the table."""
    awaited = Benchmark(
        name="erpc/awaited_call",
        unit="op/s",
        better=Better.HIGHER,
        ours=call_rate,
        about=(
            "Requests of 32 B to another node that one task of a simulated node program awaits per "
            "second of CPU time."
        ),
        rounds=3,
    )
    return [*bench_peers.benchmarks(rate, latency_us, bandwidth, put_us), awaited]
