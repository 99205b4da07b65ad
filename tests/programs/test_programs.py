"""Node programs in virtual time: tasks, the end of a program, misuse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import pyrdma as rd
from pyrdma.program import Node, Peer, Task
from tests.errors import raises
from tests.programs.support import client, client_of_itself, echo, simulated

# ---- time ----


def test_equal_seeds_give_equal_runs() -> None:
    def run(seed: int) -> tuple[Any, int]:
        with rd.Cluster.sim(nodes=8, profile="cx5", seed=seed, variance=True) as cluster:
            result = cluster.program({0: echo, "rest": client})
            return result.histograms, cluster.fingerprint

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_tasks_have_a_clock_and_a_cpu_each() -> None:
    times: dict[str, int] = {}

    async def worker(node: Node, name: str) -> None:
        await node.work(ns=10_000)
        times[name] = node.now()

    async def both(node: Node) -> None:
        begin = node.now()
        tasks = [node.spawn(worker(node, name)) for name in "ab"]
        for task in tasks:
            await task
        times["all"] = node.now() - begin

    with simulated(1, cores_per_node=4) as cluster:
        cluster.program(both)
    assert 10_000 <= times["all"] < 12_000
    with simulated(1, cores_per_node=1) as cluster:
        cluster.program(both)
    assert times["all"] >= 20_000


def test_sleep_and_work_take_their_time() -> None:
    async def one(node: Node) -> None:
        start = node.now()
        await node.sleep(1e-6, ns=500)
        await node.work(ns=250)
        node.record("time", node.now() - start)

    with simulated(1) as cluster:
        result = cluster.program(one)
    latency = result.latency("time")
    assert list(result.frame.loc[:, ["metric", "value", "unit"]].iloc[0]) == ["time", 1.0, "op"]
    assert 1750 <= latency.max < 1850


def test_a_task_returns_its_result_or_raises_its_error() -> None:
    seen: list[object] = []

    async def fails(node: Node) -> int:
        await node.sleep(ns=1000)
        raise ValueError("broken")

    async def value(node: Node) -> tuple[int, int]:
        await node.sleep(ns=10)
        return 1, 2

    async def main(node: Node) -> None:
        seen.append(await node.spawn(value(node)))
        try:
            await node.spawn(fails(node))
        except ValueError as error:
            seen.append(str(error))

    with simulated(1) as cluster:
        cluster.program(main)
    assert seen == [(1, 2), "broken"]


def test_cancelled_tasks_end_and_may_clean_up() -> None:
    said: list[str] = []

    async def forever(node: Node) -> None:
        try:
            while True:
                await node.sleep(1.0)
        finally:
            said.append("cleaned up")

    async def main(node: Node) -> None:
        task = node.spawn(forever(node))
        await node.sleep(ns=100)
        task.cancel()
        try:
            await task
        except rd.Cancelled:
            said.append("cancelled")
        assert task.done

    with simulated(1) as cluster:
        cluster.program(main, deadline_s=0.1)
        assert cluster.now_ns < 1e6
    assert said == ["cleaned up", "cancelled"]


def test_what_follows_work_comes_after_it() -> None:
    seen: list[object] = []

    async def worker(node: Node, event: Any) -> None:
        await node.work(0.05)
        event.set()

    async def main(node: Node) -> None:
        event = node.event()
        task = node.spawn(worker(node, event))
        await node.sleep(0.01)
        seen.append((event.is_set, task.done))
        await event.wait()
        seen.append(round(node.now(), -6))

    with simulated(1) as cluster:
        cluster.program(main)
    assert seen == [(False, False), 50_000_000]


def test_a_cancelled_task_that_another_awaits_is_no_silent_end() -> None:
    async def forever(node: Node) -> None:
        await node.sleep(1.0)

    async def main(node: Node) -> None:
        task = node.spawn(forever(node))
        await node.sleep(ns=100)
        task.cancel()
        await task
        raise AssertionError("not reached")

    with simulated(1) as cluster, pytest.raises(rd.Cancelled):
        cluster.program(main, deadline_s=0.1)


def test_more_replies_at_once_than_slots_are_all_sent() -> None:
    answered: list[bytes] = []

    async def answer(request: Any, go: Any) -> None:
        await go.wait()
        await request.reply(b"r")

    async def server(node: Node) -> None:
        go, waiting = node.event(), 0
        async for request in await node.bind("barrier", depth=2):
            node.spawn(answer(request, go))
            waiting += 1
            if waiting == 12:
                go.set()

    async def call(node: Node) -> None:
        peer = await node.connect("barrier", to=0)
        answered.append(await peer.call(b"q"))

    async def client(node: Node) -> None:
        for task in [node.spawn(call(node)) for _ in range(4)]:
            await task

    with simulated(4) as cluster:
        cluster.program({0: server, "rest": client}, deadline_s=0.5)
    assert answered == [b"r"] * 12


def test_events_join_tasks() -> None:
    order: list[str] = []

    async def waiter(node: Node, event: Any) -> None:  # noqa: ARG001
        assert await event.wait()
        order.append("waited")

    async def main(node: Node) -> None:
        event = node.event()
        assert not await event.wait(timeout_s=1e-6)
        task = node.spawn(waiter(node, event))
        await node.sleep(ns=500)
        order.append("set")
        event.set()
        await task

    with simulated(1) as cluster:
        cluster.program(main)
    assert order == ["set", "waited"]


# ---- the end of a program ----


def test_servers_end_when_the_others_have_ended() -> None:
    ended: list[str] = []

    async def server(node: Node) -> None:
        await echo(node)
        ended.append("server")

    with simulated() as cluster:
        cluster.program({0: server, 1: client})
        assert cluster.now_ns < 50e6
    assert ended == ["server"]


def test_a_program_can_end_after_a_duration() -> None:
    async def ticks(node: Node) -> None:
        while True:
            await node.sleep(1e-6)
            node.count("ticks")

    with simulated(2) as cluster:
        result = cluster.program(ticks, duration_s=100e-6)
    assert 2 * 98 <= result.value("ticks") <= 2 * 100


def test_a_deadline_names_the_tasks_that_wait() -> None:
    async def stuck(node: Node) -> None:
        await node.sleep(ns=1)
        await node.event().wait(timeout_s=100)

    with simulated() as cluster, raises(rd.Timeout, "deadline_s", "node 1", "stuck", "an event"):
        cluster.program(stuck, deadline_s=0.001)


def test_the_deadline_is_not_of_a_clock_that_jumps() -> None:
    ahead: list[int] = []

    async def stuck(node: Node) -> None:
        await node.sleep(0.022)
        ahead.append(node.now() - cluster.now_ns)
        await node.event().wait(timeout_s=100)

    with simulated(faults={"clock_jump": 1.0, "heal_at_ns": 20e6}) as cluster:
        with raises(rd.Timeout, "an event"):
            cluster.program(stuck, deadline_s=0.05)
        assert cluster.now_ns == 50_000_000
    assert max(ahead) > 1_000_000


def test_a_busy_task_meets_the_deadline_too() -> None:
    async def busy(node: Node) -> None:
        while True:
            await node.work(ns=1000)

    with simulated(1) as cluster, raises(rd.Timeout, "deadline_s"):
        cluster.program(busy, deadline_s=0.001)


def test_tasks_without_a_time_limit_that_wait_for_each_other_are_named() -> None:
    async def stuck(node: Node) -> None:
        await node.event().wait()

    with simulated(1) as cluster, raises(rd.Error, "stuck"):
        cluster.program(stuck, deadline_s=1.0)


def test_an_error_ends_the_program_and_keeps_its_place() -> None:
    async def fails(node: Node) -> None:
        await node.sleep(ns=5)
        raise KeyError("nothing")

    async def waits(node: Node) -> None:
        await node.sleep(100.0)

    with simulated(2) as cluster:
        with pytest.raises(KeyError) as caught:
            cluster.program({0: fails, 1: waits}, deadline_s=1000)
        assert caught.traceback[-1].name == "fails"
        assert cluster.now_ns < 1e6
        cluster.program(client_of_itself)  # the cluster serves on


def test_a_task_that_ignores_its_end_is_closed() -> None:
    async def stubborn(node: Node) -> None:
        while True:
            try:
                await node.sleep(1.0)
            except rd.Cancelled:
                continue

    async def main(node: Node) -> None:
        node.spawn(stubborn(node))
        await node.sleep(ns=10)

    with simulated(1) as cluster:
        cluster.program(main)


# ---- wrong programs ----


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        (lambda node: None, ["async def"]),  # noqa: ARG005
        ({0: client, 5: client}, ["5", "0 to 1"]),
        ({(0, 1): client, 1: client}, ["node 1", "two programs"]),
        ({}, ["no node has a program"]),
        ({"all": client}, ["'all'", "'rest'"]),
    ],
)
def test_wrong_functions_are_refused(functions: Any, words: list[str]) -> None:
    with simulated() as cluster, raises(rd.InvalidArgument, *words):
        cluster.program(functions)


async def _awaits_asyncio(node: Node) -> None:  # noqa: ARG001
    await asyncio.sleep(0)


async def _awaits_twice(node: Node) -> None:
    operation = node.sleep(ns=1)
    await operation
    await operation


async def _awaits_in_two_tasks(node: Node) -> None:
    async def waits(operation: Any) -> None:
        await operation

    operation = node.sleep(ns=100)
    first = node.spawn(waits(operation))
    await node.spawn(waits(operation))
    await first


async def _takes_too_early(node: Node) -> None:
    node.sleep(ns=1).result()


async def _spawns_a_function(node: Node) -> None:
    node.spawn(client)  # type: ignore[arg-type]


async def _sends_text(node: Node) -> None:
    peer: Peer = await node.connect("echo", to=0)
    await peer.call("text")


async def _sleeps_backwards(node: Node) -> None:
    await node.sleep(-1.0)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (_awaits_asyncio, TypeError, ["no operation of its node"]),
        (_awaits_twice, rd.InvalidArgument, ["awaited once"]),
        (_awaits_in_two_tasks, rd.InvalidArgument, ["awaited once"]),
        (_takes_too_early, rd.InvalidArgument, ["awaited once"]),
        (_spawns_a_function, rd.InvalidArgument, ["async def"]),
        (_sends_text, rd.InvalidArgument, ["data", "bytes"]),
        (_sleeps_backwards, rd.InvalidArgument, ["s is -1.0"]),
    ],
)
def test_misuse_raises_an_error_in_the_program(
    function: Callable[[Node], Any], error: type[Exception], words: list[str]
) -> None:
    with simulated() as cluster, raises(error, *words):
        cluster.program({0: echo, 1: function})


def test_a_second_python_thread_is_told_of_programs() -> None:
    errors: list[Exception] = []

    def read_time() -> None:
        try:
            _ = cluster.now_ns
        except rd.InvalidArgument as error:
            errors.append(error)

    with simulated() as cluster:
        thread = threading.Thread(target=read_time)
        thread.start()
        thread.join()
    assert "Cluster.program" in str(errors[0])


def test_nodes_serve_no_longer_after_their_program() -> None:
    kept: list[Any] = []

    async def main(node: Node) -> None:
        kept.append(node)
        kept.append(await node.bind("s"))
        task: Task[None] = node.spawn(client_of_itself(node))
        task.cancel()

    with simulated(1) as cluster:
        cluster.program(main)
        with raises(rd.Unavailable, "has ended"):
            kept[0].now()
    unused = client(kept[0])
    with raises(rd.Unavailable, "has ended"):
        kept[0].spawn(unused)
    unused.close()
