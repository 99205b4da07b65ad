"""One-way times are withheld where the hosts' clocks cannot tell them, and points carry flags."""

from __future__ import annotations

from typing import Any

import pytest

import pyrdma as rd
from pyrdma import conditions
from pyrdma.conditions import Conditions
from pyrdma.devices import Wish
from pyrdma.hosts import facts
from pyrdma.hosts.cluster import RemoteProcessCluster
from pyrdma.hosts.host import Host
from pyrdma.hosts.inventory import HostEntry
from pyrdma.result import Result
from tests.errors import raises


@pytest.fixture(scope="module")
def result() -> Result:
    load = rd.workload.VerbsLoad(op="write", size=16, measure="pingpong", record_one_way=True)
    with rd.Cluster.sim(nodes=2, profile="cx5") as cluster:
        return cluster.run(load, duration_s=0.0002)


def test_clocks_that_are_good_enough_keep_one_way_times(result: Result) -> None:
    way = result.latency("one_way_write").percentile(50)
    assert way == pytest.approx(result.latency("write").percentile(50), rel=0.2)
    with conditions.collect() as point:
        kept = Conditions().judge(result, int(0.09 * way))
    assert "one_way_write" in kept.histograms
    assert point.flags == ["clocks corrected"]
    assert point.clock_bound_ns == int(0.09 * way)


def test_clocks_that_are_too_coarse_withhold_them(result: Result) -> None:
    way = result.latency("one_way_write").percentile(50)
    with conditions.collect() as point:
        kept = Conditions().judge(result, int(0.11 * way) + 1)
    assert "one_way_write" not in kept.histograms
    assert kept.latency("write").count == result.latency("write").count, "a round trip needs none"
    assert point.flags == ["clocks corrected", "one-way times withheld"]


def test_histories_are_widened_or_withheld() -> None:
    recorded = Result(histories=[b"{}"])
    with conditions.collect() as point:
        kept = Conditions().judge(recorded, 500)
    assert (kept.histories, kept.clock_bound_ns) == ([b"{}"], 500)
    assert point.flags == ["clocks corrected"]
    with conditions.collect() as point:
        withheld = Conditions().judge(recorded, conditions.UNKNOWN_NS)
    assert point.flags == ["histories withheld"]
    with raises(rd.InvalidArgument, "histories withheld"):
        withheld.history()


def test_points_without_one_way_times_have_no_flag(result: Result) -> None:
    plain = Result(histograms={"write": result.histograms["write"]})
    with conditions.collect() as point:
        assert Conditions().judge(plain, 10**9) is plain
    assert point.flags == []


class Counted(RemoteProcessCluster):
    """A cluster on one host with given counters; it has no nodes."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any], device: str = "") -> None:
        self.conditions = Conditions()
        self._counters, self._after = [before], [after]

        self._used = [Host(HostEntry("node-0", wish=Wish(device)))]

    def _count(self) -> list[Any]:
        return self._after


def count(**ports: dict[str, int]) -> dict[str, Any]:
    return {"ports": {name.replace("_1", "/1"): v for name, v in ports.items()}, "login": "login/1"}


def test_retransmissions_flag_a_point() -> None:
    before = count(mlx_1={"packet_seq_err": 3, "port_xmit_data": 5})
    for after, flags in (
        (count(mlx_1={"packet_seq_err": 3, "port_xmit_data": 50}), []),
        (count(mlx_1={"packet_seq_err": 4, "port_xmit_data": 50}), ["retransmit"]),
        (count(mlx_1={"rnr_nak_retry_err": 1, "port_xmit_data": 9}), ["receiver not ready"]),
    ):
        cluster = Counted(before, after)
        cluster._check_counters()
        assert cluster.conditions.flags == flags


def test_rdma_on_the_login_network_fails_a_point_unless_it_is_named() -> None:
    before, after = count(login_1={"port_xmit_data": 5}), count(login_1={"port_xmit_data": 9})
    with raises(rd.Error, 16, "login/1", "node-0", "pyrdma_device"):
        Counted(before, after)._check_counters()
    named = Counted(before, after, device="login")
    named._check_counters()
    assert named.conditions.flags == ["login network"]


def test_soft_roce_counts_packets() -> None:
    risen = facts.increase(count(rxe0_1={"sent_pkts": 1}), count(rxe0_1={"sent_pkts": 4}))
    assert risen == {"rxe0/1": {"sent_pkts": 3}}
    assert facts.sent_bytes(risen["rxe0/1"]) == 3
