"""The benchmarks of LOCO's locks and barrier; the peer is Open MPI.

Each side has two processes over shared memory, each on a CPU of its own.
"""

from __future__ import annotations

from typing import Any

from pyrdma.bench import peers
from pyrdma.bench.benchmark import Benchmark, Better, PeerRun

__all__ = ["benchmarks"]

NODES = 2


def _rate(load: Any, duration_s: float) -> float:
    import pyrdma as rd

    with rd.Cluster.local(nodes=NODES, fabric="shm", mode="process") as cluster:
        return float(cluster.run(load, duration_s=duration_s).value("rate"))


def lock_rate(duration_s: float = 0.4) -> float:
    """Return critical sections per second of both nodes; a section reads, increments and writes."""
    import pyrdma as rd

    return _rate(rd.workload.LocoLock(own_memory="cpu", warmup_ns=20_000_000), duration_s)


def transaction_rate(duration_s: float = 0.4) -> float:
    """Return transfers per second of both nodes, each between two of a million accounts."""
    import pyrdma as rd

    load = rd.workload.LocoTransactions(accounts=1_000_000, own_memory="cpu", warmup_ns=20_000_000)
    return _rate(load, duration_s)


def barrier_us(duration_s: float = 0.4) -> float:
    """Return the mean time of a barrier, in microseconds."""
    import pyrdma as rd

    return NODES * 1e6 / _rate(rd.workload.LocoBarrier(warmup_ns=20_000_000), duration_s)


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks, with both of Open MPI's one-sided components where they differ."""
    openmpi = peers.load("openmpi")
    found = [
        Benchmark(
            name="loco/barrier",
            unit="us",
            better=Better.LOWER,
            ours=barrier_us,
            about="Mean time of a barrier of two; the peer: MPI_Barrier.",
            peer=PeerRun.of(openmpi, "barrier_latency", scale=1e6),
        )
    ]
    for suffix, component in (("", "sm"), ("_default", "of Open MPI's choice")):
        found += [
            Benchmark(
                name=f"loco/lock{suffix}",
                unit="op/s",
                better=Better.HIGHER,
                ours=lock_rate,
                about=(
                    "One lock that both want, a word read, counted up and written under it, by the "
                    "CPU on its host; the peer: MPI_Win_lock, MPI_Get, MPI_Put, one-sided "
                    f"component {component}."
                ),
                peer=PeerRun.of(openmpi, f"contended_lock_rate{suffix}"),
            ),
            Benchmark(
                name=f"loco/transactions{suffix}",
                unit="op/s",
                better=Better.HIGHER,
                ours=transaction_rate,
                about=(
                    "Transfers between two accounts of a million under two of 682 locks, a node's "
                    "own accounts by its CPU; the peer: 341 windows of two ranks, one-sided "
                    f"component {component}."
                ),
                peer=PeerRun.of(openmpi, f"transaction_rate{suffix}"),
            ),
        ]
    return found
