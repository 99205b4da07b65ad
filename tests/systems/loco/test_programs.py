"""Channels in node programs."""

from __future__ import annotations

import pyrdma as rd
from pyrdma.program import Node
from tests.errors import raises


def test_a_lock_excludes_the_tasks_of_other_nodes() -> None:
    holders: list[int] = []
    order: list[int] = []

    async def locker(node: Node) -> None:
        for _ in range(3):
            await node.do(lock.acquire, node=node.id)
            assert not holders
            holders.append(node.id)
            await node.do(counter.fetch_add, 1, node=node.id)
            await node.sleep(ns=2000)
            order.append(holders.pop())
            await node.do(lock.release, node=node.id)

    with rd.Cluster.sim(nodes=3, profile="c6525-25g", seed=1) as cluster:
        lock = rd.loco.TicketLock(cluster, "lock")
        counter = rd.loco.AtomicVar(cluster, "counter", host=0)
        cluster.program(locker)
        assert counter.load(node=0) == 9
    assert sorted(order) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert order[:3] != [0, 0, 0]


def test_tasks_of_one_node_take_turns_at_its_channels() -> None:
    async def adds(node: Node) -> None:
        for _ in range(5):
            await node.do(counter.fetch_add, 1, node=node.id)

    async def main(node: Node) -> None:
        for task in [node.spawn(adds(node)) for _ in range(3)]:
            await task

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        counter = rd.loco.AtomicVar(cluster, "counter", host=1)
        cluster.program(main)
        assert counter.load(node=0) == 30


def test_a_channel_of_a_program_has_to_be_made_before() -> None:
    async def main(node: Node) -> None:
        with raises(rd.InvalidArgument, "before the programs"):
            await node.do(rd.loco.TicketLock(cluster, "late").acquire, node=node.id)

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        cluster.program(main)
