"""Applications in node programs."""

from __future__ import annotations

from typing import Any

import pyrdma as rd
from pyrdma.program import Node
from tests.errors import raises
from tests.systems.krcore.test_service import WORLDS, cluster, small

__all__ = ["WORLDS", "cluster"]


def test_requests_and_messages_are_awaited(cluster: rd.Cluster) -> None:
    shared: dict[str, Any] = {}

    async def server(node: Node) -> None:
        app = node.awaits(await node.awaits(service).app(node.id))
        inbox = node.awaits(await app.vqp(bind=7))
        region = await app.reg_mr(64)
        await node.awaits(region).store(b"before")
        shared["region"] = region
        ((_, data),) = await inbox.pop_msgs(timeout_s=5.0)
        assert data == b"done"
        assert await node.awaits(region).load(6) == b"after!"

    async def client(node: Node) -> None:
        while "region" not in shared:
            await node.sleep(1e-4)
        app = node.awaits(await node.awaits(service).app(node.id))
        vqp = node.awaits(await app.vqp())
        assert await vqp.connect(2, port=7) > 0
        assert await vqp.read(shared["region"], 6) == b"before"
        await vqp.write(shared["region"], b"after!")
        assert await vqp.fetch_add(shared["region"], 5, offset=8) == 0
        assert await vqp.compare_swap(shared["region"], 5, 6, offset=8) == 5
        with raises(rd.InvalidArgument, "multiple of 8"):
            await vqp.fetch_add(shared["region"], 5, offset=3)
        await vqp.send(b"done")
        await vqp.close()

    service = small(cluster)
    cluster.program({1: client, 2: server}, deadline_s=20)
