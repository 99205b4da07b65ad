"""Node programs over the device of a guest, with a process per node and with threads."""

from __future__ import annotations

import threading
import time
from typing import Literal

import pyrdma as rd
from pyrdma import verbs
from pyrdma.check import check
from pyrdma.program import Node
from tests.errors import raises
from tests.softroce.one_host import say

CALLS, WRITES, SIZE = 50, 16, 1024


async def serve(node: Node) -> None:
    """Hold a register that the other nodes read and write by calls."""
    value = b"0"
    async for request in await node.bind("register", depth=16):
        value = request.data or value
        await request.reply(value)


async def call(node: Node) -> None:
    """Write and read the register, and record it."""
    peer = await node.connect("register", to=0)
    for i in range(CALLS):
        start = node.now()
        if i % 2 == node.id % 2:
            write = node.invoke("write", value=1000 * node.id + i)
            await peer.call(b"%d" % (1000 * node.id + i))
            write.ok()
        else:
            read = node.invoke("read")
            read.ok(int(await peer.call()) or None)
        node.record("call", node.now() - start)


async def offer(node: Node) -> None:
    """Give the peer a region and a queue pair, and wait for what it writes."""
    domain = await node.do(node.device.protection_domain)
    region = await node.do(domain.allocate, WRITES * SIZE, verbs.LOCAL_WRITE | verbs.REMOTE_WRITE)
    queue = await node.do(node.device.completion_queue, 64)
    pair = await node.do(domain.queue_pair, queue)
    inbox = await node.bind("offer", max_bytes=WRITES * SIZE)
    async for request in inbox:
        if request.data:
            await node.do(pair.connect, verbs.QpAddress.from_bytes(request.data))
            address = pair.address.to_bytes()
            await request.reply(
                len(address).to_bytes(2, "big") + address + region.remote.to_bytes()
            )
        else:
            await request.reply(region.array.tobytes())


async def write(node: Node) -> None:
    """Write to the region of the peer by verbs, and wait for the completions."""
    domain = await node.do(node.device.protection_domain)
    region = await node.do(domain.allocate, WRITES * SIZE, verbs.LOCAL_WRITE)
    queue = await node.do(node.device.completion_queue, 64)
    pair = await node.do(domain.queue_pair, queue)
    peer = await node.connect("offer", to=0)
    got = await peer.call(pair.address.to_bytes())
    end = 2 + int.from_bytes(got[:2], "big")
    await node.do(pair.connect, verbs.QpAddress.from_bytes(got[2:end]))
    there = verbs.RemoteRegion.from_bytes(got[end:])
    region.array[:] = [i % 251 for i in range(WRITES * SIZE)]
    assert len(await node.poll(queue, timeout_s=1e-3)) == 0
    for i in range(WRITES):
        start = node.now()
        pair.post([verbs.write(region.sge(SIZE * i, SIZE), there, SIZE * i, wr_id=i)])
        [done] = await node.poll(queue)
        node.record("write", node.now() - start)
        assert (done["wr_id"], done["status"]) == (i, verbs.Status.SUCCESS)
    assert await peer.call() == region.array.tobytes()


async def waits(node: Node) -> None:
    await node.event().wait()


async def calls_for_ever(node: Node) -> None:
    peer = await node.connect("register", to=0)
    while True:
        await peer.call()


def both(mode: Literal["process", "thread"]) -> None:
    """Calls and one-sided writes run."""
    with rd.Cluster.local(nodes=3, fabric="verbs", mode=mode) as cluster:
        result = cluster.program({0: serve, "rest": call}, model="register", deadline_s=60)
        assert result.latency("call").count == 2 * CALLS
        verdict = check(result.history())
        assert verdict.ok, verdict.text
        assert verdict.operations == 2 * CALLS
        say(f"{mode}: median of calls {result.latency('call').percentile(50) / 1e3:.0f} us")
        result = cluster.program({0: offer, 1: write}, deadline_s=60)
        assert result.latency("write").count == WRITES
        say(f"{mode}: median of writes {result.latency('write').percentile(50) / 1e3:.0f} us")


def ends() -> None:
    """A deadline and a killed process end the program by name."""
    with rd.Cluster.local(nodes=2, fabric="verbs") as cluster, raises(rd.Timeout, "waits", "0.5"):
        cluster.program(waits, deadline_s=0.5)
    with rd.Cluster.local(nodes=2, fabric="verbs") as cluster:
        killer = threading.Timer(1.0, cluster.kill, [0])
        killer.start()
        start = time.monotonic()
        with raises(rd.NodeEnded, "node 0", "SIGKILL"):
            cluster.program({0: serve, 1: calls_for_ever}, deadline_s=60)
        killer.join()
        took = time.monotonic() - start
        assert took < 20, took
    say(f"a killed node was named after {took:.1f} s")


if __name__ == "__main__":
    both("process")
    both("thread")
    ends()
    say("all good")
