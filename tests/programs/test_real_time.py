"""Node programs in real time, over shared memory: the same functions as in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

import pyrdma as rd
from pyrdma.program import Node
from tests.errors import raises
from tests.programs.support import client, echo


def threads(nodes: int = 2) -> Any:
    return rd.Cluster.local(nodes=nodes, fabric="shm", mode="thread")


def test_calls_over_shared_memory() -> None:
    with threads(3) as cluster:
        result = cluster.program({0: echo, "rest": client}, deadline_s=20)
    assert result.latency("rpc").count == 200


def test_tasks_of_a_node_and_functions_that_wait() -> None:
    async def child(node: Node) -> int:
        await node.sleep(0.01)
        return node.id

    async def main(node: Node) -> None:
        start = node.now()
        tasks = [node.spawn(child(node)) for _ in range(3)]
        assert [await task for task in tasks] == [node.id] * 3
        assert node.now() - start < 5e9
        domain = await node.do(node.device.protection_domain)
        region = await node.do(domain.allocate, 64)
        assert region.size == 64
        forever = node.spawn(node_forever(node))
        await node.sleep(0.002)
        forever.cancel()
        with pytest.raises(rd.Cancelled):
            await forever

    async def node_forever(node: Node) -> None:
        while True:
            await node.sleep(1.0)

    with threads(2) as cluster:
        cluster.program(main, deadline_s=20)


def test_a_deadline_and_an_error_end_the_program() -> None:
    async def stuck(node: Node) -> None:
        await node.event().wait()

    async def fails(node: Node) -> None:  # noqa: ARG001
        raise KeyError("nothing")

    with threads() as cluster:
        with raises(rd.Timeout, "deadline_s", "stuck"):
            cluster.program(stuck, deadline_s=0.05)
        with pytest.raises(KeyError):
            cluster.program({0: fails, 1: stuck}, deadline_s=20)


def test_a_cluster_closes_when_its_programs_have_ended() -> None:
    async def closes(node: Node) -> None:  # noqa: ARG001
        with raises(rd.InvalidArgument, "still run"):
            cluster._open.close()

    with threads(1) as cluster:
        cluster.program(closes, deadline_s=20)


def test_processes_have_no_programs_yet_and_say_so() -> None:
    with (
        rd.Cluster.local(nodes=1, fabric="shm", mode="process") as cluster,
        raises(rd.Unavailable, "mode='thread'"),
    ):
        cluster.program(client)
