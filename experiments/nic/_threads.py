"""Requests of 8 B of one machine to another, by threads and batch.

A thread posts its batch one request at a time, and then waits for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

__all__ = ["chart", "measure"]


def measure(doorbells: int) -> Callable[[Point], Any]:
    """Return a function that measures the rate with so many registers; 0: one per queue pair."""

    def run(point: Point) -> Any:
        return _load.rate(
            point,
            nodes=2,
            op=point["op"],
            size=8,
            threads=point["threads"],
            depth=point["depth"],
            batch=1,
            signal_every=1,
            refill="empty",
            inline=0,
            doorbells=doorbells,
            region_bytes=1 << 30,
            addresses="random",
        )

    return run


def chart() -> _sweep.Chart:
    """Return the figure: rate against threads, with a line for each batch."""
    depths = (1, 4, 8, 12, 16, 20, 24, 28, 32)
    return _sweep.Chart(
        metric="rate",
        unit="Mop/s",
        x="threads",
        xlabel="Threads",
        ylabel="Requests (M/s)",
        by="depth",
        panels=("op",),
        names={"read": "READ", "write": "WRITE"} | {d: f"batches of {d}" for d in depths},
    )
