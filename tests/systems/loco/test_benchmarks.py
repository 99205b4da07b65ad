"""LOCO's rows of ``pyrdma bench``."""

from __future__ import annotations

from pyrdma.bench.benchmark import Better
from pyrdma.systems.loco.benchmarks import benchmarks


def test_the_rows_are_as_promised() -> None:
    found = {b.name: (b.better, b.peer.name if b.peer else None) for b in benchmarks()}
    assert found == {
        "loco/awaited_read": (Better.HIGHER, None),
        "loco/barrier": (Better.LOWER, "Open MPI"),
        "loco/lock": (Better.HIGHER, "Open MPI"),
        "loco/lock_default": (Better.HIGHER, "Open MPI"),
        "loco/transactions": (Better.HIGHER, "Open MPI"),
        "loco/transactions_default": (Better.HIGHER, "Open MPI"),
        "loco_kv/lookup_rate": (Better.HIGHER, "Redis"),
        "loco_kv/lookup_rate_unpipelined": (Better.HIGHER, "Redis"),
        "loco_kv/update_rate": (Better.HIGHER, "Redis"),
    }
