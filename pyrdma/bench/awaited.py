"""Measures how many operations a simulated node program awaits per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["awaited_rate"]


def awaited_rate(prepare: Callable[[Any], Callable[[Any], Any]], awaits: int = 50_000) -> float:
    """Return the operations per second of CPU time that a node program awaits, one by one.

    Parameters
    ----------
    prepare
        Makes what the program needs, of a simulated cluster of two nodes. Returns the function that
        takes the node and returns a function without arguments, which makes each operation.
    awaits
        Number of operations.
    """
    import pyrdma as rd

    seconds = 0.0

    async def main(node: Any) -> None:
        nonlocal seconds
        operation = operation_of(node)
        start = time.process_time()
        for _ in range(awaits):
            await operation()
        seconds = time.process_time() - start

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        operation_of = prepare(cluster)
        cluster.program({0: main})
    return awaits / seconds
