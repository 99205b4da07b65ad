"""Stores in node programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pyrdma as rd
from pyrdma.program import Node
from tests.systems.tailwind.test_store import WORLDS, sim, small


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


def test_a_fill_after_a_cancelled_one_has_other_keys() -> None:
    filled: list[tuple[int, int]] = []

    class Servers:
        """The native side of a store; the task is cancelled when server 0 has its objects."""

        create_table = staticmethod(lambda *_: 0)

        def runs(self, server: int) -> bool:
            if server == 1 and len(filled) == 1:
                raise rd.Cancelled
            return True

        def fill(self, server: int, table: int, first: int, objects: int, *_: int) -> int:
            del table
            filled.append((server, first))
            return objects // 3

    with sim() as cluster:
        store = small(cluster)
        vars(store)["_native"] = Servers()
        with pytest.raises(rd.Cancelled):
            store.fill(objects=60)
        store.fill(objects=30)
    assert filled == [(0, 0), (0, 60), (1, 60), (2, 60)]
