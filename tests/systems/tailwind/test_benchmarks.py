"""The rows that compare Tailwind with its peers, and the peers themselves."""

from __future__ import annotations

import pytest

from pyrdma.bench import peers
from pyrdma.bench.benchmark import Better
from pyrdma.systems.tailwind import benchmarks


def test_rows_stand_beside_their_peers() -> None:
    rows = benchmarks.benchmarks()
    found = {r.name: (r.unit, r.better, r.peer.name if r.peer else None) for r in rows}
    assert found == {
        "tailwind/put_rate": ("op/s", Better.HIGHER, "Redis, WAIT 3"),
        "tailwind/put_rate_paper": ("op/s", Better.HIGHER, "Redis, WAIT 3"),
        "tailwind/put_latency": ("us", Better.LOWER, "Redis, WAIT 3"),
        "tailwind/put_latency_etcd": ("us", Better.LOWER, "etcd"),
    }


def test_our_side_measures() -> None:
    assert 1e2 < benchmarks.put_rate(0.1) < 1e8
    assert 1e2 < benchmarks.put_rate_paper(0.1) < 1e8
    assert 0.1 < benchmarks.put_latency_us(0.1) < 1e6


@pytest.mark.parametrize(
    ("measurement", "least", "most"), [("put_rate", 1e2, 1e7), ("put_latency", 1e-6, 1e-1)]
)
def test_redis_waits_for_its_replicas(measurement: str, least: float, most: float) -> None:
    peer = peers.load("redis_wait")
    there = peer.available()
    if not there.ok:
        pytest.skip(f"{peer.NAME}: {there.reason}; to get it: {there.install_command}")
    assert least < peer.run([measurement], 0.05)[measurement] < most
