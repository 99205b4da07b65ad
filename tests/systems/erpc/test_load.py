"""What the load of RPCs measures."""

from __future__ import annotations

from typing import Any

import pytest

from pyrdma import Cluster, workload
from pyrdma.result import Result

LINK = 25e9 / 8  # bytes per second of the profile cx4
MIB = 1 << 20


def run(nodes: int, duration_s: float = 2e-3, **load: Any) -> Result:
    settings = {"preset": "paper", "pattern": "incast", "request": MIB, **load}
    with Cluster.sim(nodes=nodes, profile="cx4", seed=1) as cluster:
        return cluster.run(workload.ErpcLoad(**settings), duration_s=duration_s)


def test_a_server_alone_tells_its_bandwidth_after_the_warm_up() -> None:
    result = run(4, warmup_ns=1_000_000, congestion_control="none")
    served = {s.node: s.value for s in result.samples if s.metric == "served_bandwidth"}
    assert set(served) <= {-1, 0}
    assert 0.8 * LINK < served[0] < LINK


def test_round_trips_count_in_the_interval_alone() -> None:
    result = run(2, duration_s=1e-4, record_rtt=True)
    sent = sum(s.value for s in result.samples if s.metric == "packets_sent" and s.node == 1)
    # The last request goes on for longer than the interval.
    assert 0 < result.latency("rtt").count < sent / 2


def test_a_server_without_copies_answers() -> None:
    with_copies, without = (
        run(2, request_copies=switch).latency("rpc") for switch in ("on", "off")
    )
    assert with_copies.count > 0
    assert without.mean == pytest.approx(with_copies.mean, rel=0.01)  # the link bounds both


@pytest.mark.parametrize("nodes", [2, 5])
def test_the_first_requests_wait_for_no_other_node(nodes: int) -> None:
    result = run(nodes, duration_s=5e-4, pattern="all", request=32, warmup_ns=0)
    assert result.latency("rpc").percentile(100) < 50_000  # a look-up at set-up takes 377 us
