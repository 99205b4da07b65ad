"""Groups and domains in node programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pyrdma as rd
from pyrdma.program import Node
from pyrdma.systems.spindle import Domain, Group, Topic

WORLDS: dict[str, Callable[[], Any]] = {
    "sim": lambda: rd.Cluster.sim(nodes=3, profile="spindle", seed=1),
    "shm": lambda: rd.Cluster.local(nodes=3, fabric="shm", mode="thread"),
}


@pytest.mark.parametrize("world", WORLDS)
def test_all_nodes_receive_one_sequence(world: str) -> None:
    found: dict[int, list[bytes]] = {}

    async def main(node: Node) -> None:
        member = node.awaits(group)
        for i in range(4):
            await member.send(b"%d of %d" % (i, node.id))
        found[node.id] = []
        while len(found[node.id]) < 12:
            found[node.id] += [each.data for each in await member.receive(timeout_s=1.0)]
        assert await member.standing(node.id) == "member"

    with WORLDS[world]() as cluster:
        group = Group(cluster, window=4, max_message=64)
        cluster.program(main, deadline_s=20)
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 12


def test_samples_reach_a_subscriber() -> None:
    async def publisher(node: Node) -> None:
        await node.awaits(domain).publish("t", [b"a", b"b"])

    async def subscriber(node: Node) -> None:
        reader = node.awaits(domain)
        samples = [sample.data for sample in await reader.take("t", most=1)]
        samples += [sample.data for sample in await reader.take("t")]
        assert samples == [b"a", b"b"]
        assert [sample.data for sample in await reader.read("t")] == [b"a", b"b"]

    with WORLDS["sim"]() as cluster:
        topic = Topic("t", publishers=[0], subscribers=[1, 2], quality="volatile")
        domain = Domain(cluster, [topic])
        cluster.program({0: publisher, (1, 2): subscriber})
