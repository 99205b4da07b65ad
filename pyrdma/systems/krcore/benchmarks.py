"""KRCore's rows of ``pyrdma bench``."""

from __future__ import annotations

from pyrdma.bench.benchmark import Benchmark

__all__ = ["benchmarks"]


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks; their names begin with the system's name."""
    return []
