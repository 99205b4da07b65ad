"""LOCO's rows of ``pyrdma bench``."""

from __future__ import annotations

from pyrdma.bench.benchmark import Benchmark

from . import bench_locks, bench_store

__all__ = ["benchmarks"]


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks, in the order of the table."""
    return [*bench_locks.benchmarks(), *bench_store.benchmarks()]
