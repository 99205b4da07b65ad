"""The rows that compare KRCore with its peers, and their two sides."""

from __future__ import annotations

from pyrdma.bench.benchmark import Better
from pyrdma.systems.krcore import benchmarks


def test_rows_stand_beside_their_peers() -> None:
    rows = benchmarks.benchmarks()
    found = {r.name: (r.unit, r.better, r.peer.name if r.peer else None) for r in rows}
    assert found == {
        "krcore/call": ("us", Better.LOWER, "cache lines"),
        "krcore/connect_cached": ("us", Better.LOWER, "empty calls"),
        "krcore/connect_miss": ("us", Better.LOWER, "cached + READs"),
        "krcore/connect_rate": ("op/s", Better.HIGHER, "Unix sockets"),
        "krcore/connect_rate_ucx": ("op/s", Better.HIGHER, "UCX"),
        "krcore/read_rate_8": ("op/s", Better.HIGHER, "shm"),
        "krcore/ring_read_rate_8": ("op/s", Better.HIGHER, "echoes"),
        "krcore/race_lookups": ("op/s", Better.HIGHER, "READs / 3"),
        "krcore/race_lookups_redis": ("op/s", Better.HIGHER, "Redis"),
    }


def test_our_side_measures() -> None:
    assert 1e-3 < benchmarks.call_us(0.02) < 1e4
    assert 1e2 < benchmarks.connect_rate(True, 0.02) < 1e8
    assert 1e1 < benchmarks.connect_rate(False, 0.02) < 1e8
    assert 1e2 < benchmarks.read_rate(0.02) < 1e9
    assert 1e2 < benchmarks.lookup_rate(0.02) < 1e8


def test_our_side_as_a_peer_measures() -> None:
    assert 1e-3 < benchmarks.line_us(0.01) < 1e3
    assert 1e-2 < benchmarks.raw_read_us(128, 0.02) < 1e5
    assert 1e2 < benchmarks.raw_read_rate(8, 4096, 0.02) < 1e10
