"""LOCO's rows of ``pyrdma bench``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrdma.bench.awaited import awaited_rate
from pyrdma.bench.benchmark import Benchmark, Better

from . import bench_locks, bench_store

__all__ = ["benchmarks"]


def _awaited_read(cluster: Any) -> Callable[[Any], Any]:
    import pyrdma as rd

    word = rd.loco.AtomicVar(cluster, "word", host=1)
    return lambda node: node.awaits(word).load


def read_rate() -> float:
    """Return the reads of a remote variable per second of CPU time of a node program."""
    return awaited_rate(_awaited_read)


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks, in the order of the table."""
    return [
        *bench_locks.benchmarks(),
        *bench_store.benchmarks(),
        Benchmark(
            name="loco/awaited_read",
            unit="op/s",
            better=Better.HIGHER,
            ours=read_rate,
            about=(
                "Reads of a variable at another node that one task of a simulated node program "
                "awaits per second of CPU time."
            ),
            rounds=3,
        ),
    ]
