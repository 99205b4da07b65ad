"""Sessions in node programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pyrdma as rd
from pyrdma.program import Node
from pyrdma.systems.erpc import Echo, Mesh, RpcFailed
from tests.errors import raises

WORLDS: dict[str, Callable[[], Any]] = {
    "sim": lambda: rd.Cluster.sim(nodes=3, profile="cx5", seed=1),
    "shm": lambda: rd.Cluster.local(nodes=3, fabric="shm", mode="thread"),
}


@pytest.mark.parametrize("world", WORLDS)
def test_calls_are_awaited(world: str) -> None:
    async def main(node: Node) -> None:
        session = node.awaits(await node.awaits(mesh).connect(node.id, 0))
        for i in range(5):
            assert await session.call(1, b"%d" % i) == b"%d" % i
        assert await session.calls(1, [b"a", b"b"]) == [b"a", b"b"]
        with raises(RpcFailed, "no handler"):
            await session.call(2, b"x")
        await session.close()
        with raises(rd.InvalidArgument, "is closed"):
            await session.call(1, b"x")

    with WORLDS[world]() as cluster:
        mesh = Mesh(cluster)
        mesh.serve(0, 1, Echo())
        cluster.program({(1, 2): main}, deadline_s=20)
