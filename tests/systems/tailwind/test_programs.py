"""Stores in node programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pyrdma as rd
from pyrdma.program import Node
from tests.systems.tailwind.test_store import WORLDS, small


@WORLDS
def test_objects_are_written_and_read(world: Callable[[], rd.Cluster]) -> None:
    async def main(node: Node) -> None:
        client = node.awaits(store)
        assert await client.read(b"a") is None
        versions = [await client.write(b"a", b"%d" % i) for i in range(3)]
        assert versions == sorted(versions)
        assert await client.read(b"a") == b"2"
        assert await client.remove(b"a")
        assert not await client.remove(b"a")
        await client.fill(objects=5)
        with pytest.raises(rd.InvalidArgument):
            await client.write(b"k" * 70_000, b"")

    with world() as cluster:
        store = small(cluster)
        cluster.program({store.coordinator: main}, deadline_s=20)
