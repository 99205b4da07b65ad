"""Programs that several tests run."""

from __future__ import annotations

from typing import Any

import pyrdma as rd
from pyrdma.program import Node


def simulated(nodes: int = 2, **options: Any) -> Any:
    return rd.Cluster.sim(nodes=nodes, profile="cx5", seed=1, **options)


async def echo(node: Node) -> None:
    inbox = await node.bind("echo")
    async for request in inbox:
        await node.work(ns=200)
        await request.reply(request.data)


async def client(node: Node) -> None:
    peer = await node.connect("echo", to=0)
    for i in range(100):
        start = node.now()
        assert await peer.call(b"%d" % i) == b"%d" % i
        node.record("rpc", node.now() - start)


async def client_of_itself(node: Node) -> None:
    if node.id == 0:
        node.spawn(echo(node))
    peer = await node.connect("echo", to=0)
    assert await peer.call(b"x") == b"x"


async def waits_for_ever(node: Node) -> None:
    await node.event().wait()


async def register(node: Node) -> None:
    value = b""
    inbox = await node.bind("register")
    async for request in inbox:
        value = request.data or value
        await request.reply(value)


async def uses_register(node: Node) -> None:
    peer = await node.connect("register", to=0)
    for i in range(20):
        if i % 2 == node.id % 2:
            write = node.invoke("write", value=100 * node.id + i)
            await peer.call(b"%d" % (100 * node.id + i))
            write.ok()
        else:
            read = node.invoke("read")
            got = await peer.call()
            read.ok(int(got) if got else None)  # nobody may have written yet
