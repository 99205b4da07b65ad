"""Nodes with several devices, of which one fails."""

from typing import Any, NamedTuple

import pytest

import pyrdma as rd
from pyrdma import verbs
from tests.errors import raises

WAIT = 1.0


class End(NamedTuple):
    """One device's objects."""

    region: verbs.MemoryRegion
    queue: verbs.CompletionQueue
    pair: verbs.QueuePair


def end(device: verbs.Device) -> End:
    domain, queue = device.protection_domain(), device.completion_queue(64)
    region = domain.allocate(64, access=verbs.LOCAL_WRITE | verbs.REMOTE_WRITE)
    return End(region, queue, domain.queue_pair(queue, timeout_us=10, retry_count=2))


def connected(a: verbs.Device, b: verbs.Device) -> tuple[End, End]:
    here, there = end(a), end(b)
    here.pair.connect(there.pair.address)
    there.pair.connect(here.pair.address)
    return here, there


def write(source: End, target: End, value: int) -> Any:
    source.region.array[0] = value
    source.pair.post([verbs.write(source.region.sge(0, 1), target.region.remote, 8, wr_id=value)])
    return source.queue.poll(timeout_s=WAIT, check=False)[0]


def test_one_of_two_devices_fails() -> None:
    with rd.Cluster.sim(nodes=2, profile="cx5", devices_per_node=2) as cluster:
        ours, theirs = cluster.devices_of(0), cluster.devices_of(1)
        assert [(d.node, d.index, d.name) for d in ours] == [(0, 0, "sim0"), (0, 1, "sim0.1")]
        assert [d.name for d in cluster.devices] == ["sim0", "sim1"]
        links = [connected(a, b) for a, b in zip(ours, theirs, strict=True)]
        (a0, b0), (a1, b1) = links
        assert a0.pair.qp_num == a1.pair.qp_num
        assert b0.region.remote.rkey == b1.region.remote.rkey
        for value, (a, b) in enumerate(links, 1):
            assert write(a, b, value)["wr_id"] == value
        assert [int(b.region.array[8]) for _, b in links] == [1, 2]

        cluster.fail_device(1, 1, duration_s=0.01)
        assert write(a0, b0, 3)["status"] == verbs.Status.SUCCESS
        assert write(a1, b1, 4)["status"] == verbs.Status.RETRY_EXCEEDED
        assert b1.pair.state == verbs.QpState.ERROR
        assert write(b1, a1, 5)["status"] == verbs.Status.FLUSHED
        fired, reached = cluster.fault_counters()["nic_failure"]
        assert fired == 1
        assert reached > 0
        assert all(cluster.counters(0, device)["requests"] > 0 for device in (0, 1))


def test_wrong_numbers_of_devices_are_named() -> None:
    for wrong in (0, 17, -1, True, 1.5):
        with raises(rd.InvalidArgument, "devices_per_node", wrong):
            rd.Cluster.sim(nodes=2, profile="cx5", devices_per_node=wrong)  # type: ignore[arg-type]
    with rd.Cluster.sim(nodes=2, profile="cx5", devices_per_node=2) as cluster:
        for wrong in (2, -1):
            with raises(rd.InvalidArgument, wrong):
                cluster.fail_device(0, wrong, 0.001)
            with raises(rd.InvalidArgument, wrong):
                cluster.counters(0, wrong)
        with raises(rd.InvalidArgument, 2):
            cluster.devices_of(2)


@pytest.mark.parametrize("fabric", ["sim", "shm"])
def test_a_node_has_one_device_by_default(fabric: str) -> None:
    made: rd.Cluster = (
        rd.Cluster.sim(nodes=2, profile="cx5")
        if fabric == "sim"
        else rd.Cluster.local(nodes=2, mode="thread")
    )
    with made as cluster:
        assert [d.index for d in cluster.devices_of(1)] == [0]
