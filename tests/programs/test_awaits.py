"""Objects whose methods a node program awaits."""

from __future__ import annotations

from typing import Any

import pytest

import pyrdma as rd
from pyrdma.program import Node
from tests.errors import raises
from tests.programs.support import simulated


class Counter:
    """An object as systems have it."""

    name = "a counter"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def add(self, value: int, *, node: int) -> int:
        self.calls.append((value, node))
        return value

    def move(self, node: int, to: int) -> int:
        self.calls.append((node, to))
        return to


@pytest.mark.parametrize("fabric", ["sim", "shm"])
def test_methods_are_awaited_for_the_node_unless_another_is_given(fabric: str) -> None:
    counter = Counter()

    async def main(node: Node) -> None:
        own = node.awaits(counter)
        assert own.name == "a counter"
        assert await own.add(3) == 3
        assert await own.add(4, node=0) == 4
        assert await own.move(0, 5) == 5
        assert "awaited by node 1" in repr(own)

    made = (
        simulated() if fabric == "sim" else rd.Cluster.local(nodes=2, fabric="shm", mode="thread")
    )
    with made as cluster:
        cluster.program({1: main}, deadline_s=20)
    assert counter.calls == [(3, 1), (4, 0), (0, 5)]


class Stairs:
    """An object whose methods have attributes of their own."""

    def climb(self) -> str:
        return "on top"

    climb.steps = lambda: None  # type: ignore[attr-defined]

    def fall(self) -> None:
        """Promise steps, but have none."""

    fall.__pyrdma_steps__ = lambda _: 3  # type: ignore[attr-defined]


def test_methods_may_have_steps_of_their_own() -> None:
    stairs = Stairs()

    async def main(node: Node) -> None:
        assert await node.do(stairs.climb) == "on top"
        with raises(rd.InvalidArgument, "function is", "__pyrdma_steps__"):
            await node.do(stairs.fall)

    with simulated(1) as cluster:
        cluster.program(main)


def test_what_has_no_methods_that_wait_is_refused() -> None:
    async def main(node: Node) -> None:
        for wrong in (3, "x", Counter, None, object()):
            with raises(rd.InvalidArgument, "object is", "give a channel"):
                node.awaits(wrong)

    with simulated(1) as cluster:
        cluster.program(main)
