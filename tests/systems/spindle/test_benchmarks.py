"""The rows that compare Spindle with its peers, and the peers themselves."""

from __future__ import annotations

import pytest

from pyrdma.bench import peers
from pyrdma.bench.benchmark import Better
from pyrdma.systems.spindle import benchmarks


def test_rows_stand_beside_their_peers() -> None:
    rows = benchmarks.benchmarks()
    found = {r.name: (r.unit, r.better, r.peer.name if r.peer else None) for r in rows}
    assert found == {
        "spindle/multicast_10k": ("byte/s", Better.HIGHER, "memcpy"),
        "spindle/multicast_10k_corosync": ("byte/s", Better.HIGHER, "Corosync"),
        "spindle/dds_rate": ("op/s", Better.HIGHER, "Cyclone DDS"),
        "spindle/dds_latency": ("us", Better.LOWER, "Cyclone DDS"),
    }


def test_our_side_measures() -> None:
    assert 1e7 < benchmarks.delivered(0.05) < 1e12
    assert 1e4 < benchmarks.sample_rate(0.05) < 1e9
    assert 0.01 < benchmarks.sample_latency_us(0.02) < 1e5


@pytest.mark.parametrize(
    ("name", "measurement", "least", "most"),
    [
        ("cyclonedds", "rate_1024", 1e3, 1e7),
        ("cyclonedds", "latency_1024", 1e-6, 1e-2),
        ("corosync", "rate_10240", 1e2, 1e6),
    ],
)
def test_the_peers_measure(name: str, measurement: str, least: float, most: float) -> None:
    peer = peers.load(name)
    there = peer.available()
    if not there.ok:
        pytest.skip(f"{name}: {there.reason}; to get it: {there.install_command}")
    assert least < peer.run([measurement], 0.05)[measurement] < most
