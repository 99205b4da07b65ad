"""Channels in node programs."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

import pyrdma as rd
from pyrdma.program import Node
from tests.errors import raises

WORLDS: dict[str, Callable[[], Any]] = {
    "sim": lambda: rd.Cluster.sim(nodes=2, profile="cx5", seed=1),
    "shm": lambda: rd.Cluster.local(nodes=2, fabric="shm", mode="thread"),
}


@pytest.mark.parametrize("world", WORLDS)
def test_every_channel_is_awaited(world: str) -> None:
    async def main(node: Node) -> None:
        at = {key: node.awaits(channel) for key, channel in channels.items()}
        assert at["barrier"].name == "barrier"
        if node.id == 0:
            await at["owned"].store(-7)
            await at["owned"].push()
            await at["region"].write(b"hello", to=1, offset=3)
            assert await at["store"].insert(5, 50)
            assert not await at["store"].insert(5, 51)
            assert await at["queue"].push(8)
        assert await at["barrier"].arrive() >= 0
        assert await at["owned"].load() == await at["owned"].pull() == -7
        assert await at["region"].read(5, of=1, offset=3) == b"hello"
        assert await at["store"].lookup(5) == 50
        assert await at["store"].lookup(6) is None
        await at["lock"].acquire()
        before = await at["word"].load()
        assert await at["word"].fetch_add(-1) == before
        await at["lock"].release()
        await at["barrier"].arrive()
        if node.id == 1:
            assert await at["queue"].pop() == 8
            assert await at["queue"].pop(node=0) is None
            assert await at["store"].update(5, 51)
            assert await at["store"].remove(5)
            assert await at["word"].compare_swap(2**64 - 2, 1) == 2**64 - 2

    with WORLDS[world]() as cluster:
        channels: dict[str, Any] = {
            "barrier": rd.loco.Barrier(cluster, "barrier"),
            "owned": rd.loco.OwnedVar(cluster, "owned", owner=0),
            "region": rd.loco.SharedRegion(cluster, "region", 64),
            "word": rd.loco.AtomicVar(cluster, "word", host=1),
            "lock": rd.loco.TicketLock(cluster, "lock"),
            "queue": rd.loco.SharedQueue(cluster, "queue"),
            "store": rd.loco.KvStore(cluster, "store", keys=64),
        }
        cluster.program(main, deadline_s=20)
        assert channels["word"].load(node=0) == 1


def adds(do: Callable[[Any, Node], Any], count: int) -> tuple[int, int, float]:
    """Return the fingerprint, the sum and the CPU time of a program that adds by `do`."""

    async def main(node: Node) -> None:
        for _ in range(count):
            await do(word, node)
            await node.sleep(ns=node.random.randrange(100))

    with rd.Cluster.sim(nodes=4, profile="cx5", seed=3, variance=True) as cluster:
        word = rd.loco.AtomicVar(cluster, "word", host=1)
        start = time.process_time()
        cluster.program(main)
        took = time.process_time() - start
        return cluster.fingerprint, word.load(node=0), took


def test_an_awaited_method_does_what_a_function_does_in_less_time() -> None:
    def method(word: Any, node: Node) -> Any:
        return node.do(word.fetch_add, 1, node=node.id)

    def function(word: Any, node: Node) -> Any:
        return node.do(lambda: word.fetch_add(1, node=node.id))

    fast, again, slow = adds(method, 200), adds(method, 200), adds(function, 200)
    assert fast[:2] == again[:2] == slow[:2]
    assert fast[1] == 800
    assert 2 * fast[2] < slow[2]


def test_runs_are_equal_wherever_the_objects_lie_in_memory() -> None:
    places = random.Random(1)
    kept: list[object] = []

    async def main(node: Node) -> None:
        await node.awaits(word).fetch_add(1)

    def elsewhere() -> None:
        kept.extend(object.__new__(rd.loco.AtomicVar) for _ in range(places.randrange(20)))

    fingerprints = set()
    for _ in range(4):
        with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
            word = rd.loco.AtomicVar(cluster, "word", host=1)
            elsewhere()
            lock = rd.loco.TicketLock(cluster, "lock")
            elsewhere()
            queue = rd.loco.SharedQueue(cluster, "queue")
            elsewhere()
            other = rd.loco.AtomicVar(cluster, "other", host=0)
            cluster.program(main)
            fingerprints.add(cluster.fingerprint)
            kept += (word, lock, queue, other)
    assert len(fingerprints) == 1


def test_errors_of_awaited_methods() -> None:
    async def main(node: Node) -> None:
        word, lock = node.awaits(cluster_word), node.awaits(cluster_lock)
        with raises(rd.InvalidArgument, "node is 7"):
            await word.load(node=7)
        with raises(rd.InvalidArgument, "addend is 'x'"):
            await word.fetch_add("x")
        with raises(TypeError, "'addend'"):
            await word.fetch_add()
        with raises(rd.InvalidArgument, "without holding it"):
            await lock.release()
        with raises(rd.InvalidArgument, "before the programs"):
            await node.do(barrier.wait)
        once = word.load()
        assert await once == 0
        with raises(rd.InvalidArgument, "awaited once"):
            await once
        with pytest.raises(AttributeError):
            _ = word.nothing

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        cluster_word = rd.loco.AtomicVar(cluster, "word", host=1)
        cluster_lock = rd.loco.TicketLock(cluster, "lock")
        barrier = rd.loco.Barrier(cluster, "barrier")
        cluster.program(main)


def test_a_kill_ends_a_task_that_awaits_a_channel() -> None:
    seen: list[object] = []

    async def main(node: Node) -> None:
        barrier, word = node.awaits(cluster_barrier), node.awaits(cluster_word)
        seen.append(("start", node.id, node.incarnation))
        if node.id == 1 and node.incarnation == 0:
            try:
                await barrier.arrive()
                seen.append("arrived")
            finally:
                seen.append("finally")
        await node.sleep(ns=50_000)
        if node.id == 0:
            await word.fetch_add(1)

    with rd.Cluster.sim(nodes=3, profile="cx5", seed=1) as cluster:
        cluster_barrier = rd.loco.Barrier(cluster, "barrier")
        cluster_word = rd.loco.AtomicVar(cluster, "word", host=2)
        cluster_barrier.wait()
        assert cluster_word.load(node=0) == 0
        cluster.kill(1, after_s=20e-6)
        cluster.program({0: main, 1: main}, deadline_s=1)
        assert cluster_word.load(node=0) == 1
    gc.collect()
    assert seen == [("start", 0, 0), ("start", 1, 0), "finally"]


def test_a_cancelled_task_ends_at_its_next_await() -> None:
    steps: list[str] = []

    async def adder(node: Node) -> None:
        word = node.awaits(cluster_word)
        while True:
            await word.fetch_add(1)
            steps.append("added")

    async def main(node: Node) -> None:
        task = node.spawn(adder(node))
        await node.sleep(ns=30_000)
        task.cancel()
        with raises(rd.Cancelled):
            await task

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        cluster_word = rd.loco.AtomicVar(cluster, "word", host=1)
        cluster.program({0: main})
        assert cluster_word.load(node=0) in (len(steps), len(steps) + 1)
    assert len(steps) > 3


def test_a_program_with_a_deadline_ends_among_awaited_methods() -> None:
    async def main(node: Node) -> None:
        word = node.awaits(cluster_word)
        while True:
            await word.load()
            node.count("loads")

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        cluster_word = rd.loco.AtomicVar(cluster, "word", host=1)
        assert cluster.program({0: main}, duration_s=1e-4).value("loads") > 10
        with raises(rd.Timeout, "deadline_s"):
            cluster.program({0: main}, deadline_s=1e-4)


def test_a_lock_excludes_the_tasks_of_other_nodes() -> None:
    holders: list[int] = []
    order: list[int] = []

    async def locker(node: Node) -> None:
        for _ in range(3):
            await node.do(lock.acquire, node=node.id)
            assert not holders
            holders.append(node.id)
            await node.do(counter.fetch_add, 1, node=node.id)
            await node.sleep(ns=2000)
            order.append(holders.pop())
            await node.do(lock.release, node=node.id)

    with rd.Cluster.sim(nodes=3, profile="c6525-25g", seed=1) as cluster:
        lock = rd.loco.TicketLock(cluster, "lock")
        counter = rd.loco.AtomicVar(cluster, "counter", host=0)
        cluster.program(locker)
        assert counter.load(node=0) == 9
    assert sorted(order) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert order[:3] != [0, 0, 0]


@pytest.mark.parametrize("world", WORLDS)
def test_tasks_of_one_node_exclude_each_other_by_a_lock(world: str) -> None:
    inside: list[int] = []
    most = 0

    async def user(node: Node, number: int) -> None:
        nonlocal most
        for _ in range(3):
            await node.do(lock.acquire, node=node.id)
            inside.append(number)
            most = max(most, len(inside))
            await node.sleep(ns=20_000)
            inside.remove(number)
            await node.do(lock.release, node=node.id)

    async def main(node: Node) -> None:
        for task in [node.spawn(user(node, number)) for number in range(3)]:
            await task

    with WORLDS[world]() as cluster:
        lock = rd.loco.TicketLock(cluster, "lock")
        cluster.program(main)
        if world == "sim":
            assert cluster.now_ns < 1e9  # nobody has waited to the limit of 10 s
    assert most == 1


@pytest.mark.parametrize("world", WORLDS)
def test_a_lock_is_released_by_the_task_that_holds_it(world: str) -> None:
    async def other(node: Node) -> None:
        assert not await node.do(lock.try_acquire, node=0)
        with raises(rd.InvalidArgument, "main", "lock"):
            await node.do(lock.release, node=0)
        with raises(rd.InvalidArgument, "main", "lock"):
            await node.do(release)  # calls it in a function of its own

    def release() -> None:
        lock.release(node=0)

    async def leaver(node: Node) -> None:
        await node.do(lock.acquire, node=0)

    async def main(node: Node) -> None:
        if node.id != 0:
            return
        assert await node.do(lock.try_acquire, node=0)
        await node.spawn(other(node))
        await node.do(lock.release, node=0)
        await node.spawn(leaver(node))
        await node.do(lock.release, node=0)  # of a task that has ended

    with WORLDS[world]() as cluster:
        lock = rd.loco.TicketLock(cluster, "lock")
        cluster.program(main)
        lock.acquire(node=1)
        assert not lock.try_acquire(node=0)
        lock.release(node=1)
        assert lock.try_acquire(node=0)
        lock.release(node=0)


def test_a_task_at_a_barrier_leaves_its_node_to_the_others() -> None:
    async def holder(node: Node) -> None:
        await node.do(lock.acquire, node=0)
        await node.sleep(ns=50_000)
        await node.do(lock.release, node=0)

    async def main(node: Node) -> None:
        if node.id == 0:
            task = node.spawn(holder(node))
            await node.sleep(ns=20_000)
            for arrival in [node.spawn(arrive(node)) for _ in range(2)]:
                await arrival
            await task
        else:
            await node.sleep(ns=10_000)
            await node.do(lock.acquire, node=node.id)  # before it arrives
            await node.do(lock.release, node=node.id)
            for _ in range(2):
                await arrive(node)

    async def arrive(node: Node) -> None:
        await node.do(barrier.arrive, node=node.id)

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        lock = rd.loco.TicketLock(cluster, "lock")
        barrier = rd.loco.Barrier(cluster, "barrier")
        cluster.program(main)
        assert cluster.now_ns < 1e9


def test_tasks_of_one_node_take_turns_at_its_channels() -> None:
    async def adds(node: Node) -> None:
        for _ in range(5):
            await node.do(counter.fetch_add, 1, node=node.id)

    async def main(node: Node) -> None:
        for task in [node.spawn(adds(node)) for _ in range(3)]:
            await task

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        counter = rd.loco.AtomicVar(cluster, "counter", host=1)
        cluster.program(main)
        assert counter.load(node=0) == 30


def test_tasks_of_one_node_get_their_channels_in_the_order_of_their_calls() -> None:
    loads = {"first": 0, "second": 0}

    async def reads(node: Node, name: str) -> None:
        own = node.awaits(word)
        while True:
            await own.load()
            loads[name] += 1

    async def main(node: Node) -> None:
        node.spawn(reads(node, "first"))
        await reads(node, "second")

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        word = rd.loco.AtomicVar(cluster, "word", host=1)
        cluster.program({0: main}, duration_s=1e-4)
    assert 10 < max(loads.values()) <= 2 * min(loads.values())


@pytest.mark.parametrize("world", WORLDS)
def test_a_program_that_ends_gives_its_locks_back(world: str) -> None:
    rounds = 0

    async def main(node: Node) -> None:
        nonlocal rounds
        own = node.awaits(lock)
        while True:
            await own.acquire()
            try:
                await node.sleep(ns=500)
                rounds += 1
            finally:
                await own.release()

    with WORLDS[world]() as cluster:
        lock = rd.loco.TicketLock(cluster, "lock")
        cluster.program(main, duration_s=0.1 if world == "shm" else 1e-4)
        assert rounds > 3
        if world == "sim":
            assert cluster.now_ns < 1e9  # nobody has waited for a lock to its limit of 10 s
        lock.acquire(node=1)
        lock.release(node=1)


def test_a_lock_that_stays_held_does_not_hide_how_the_program_ended() -> None:
    lock: Any = None

    async def main(node: Node) -> None:
        while True:
            await node.do(lock.acquire, node=node.id)
            await node.work(ns=500)
            await node.do(lock.release, node=node.id)

    def run(**end: Any) -> None:
        with rd.Cluster.sim(nodes=3, profile="cx5", seed=1) as cluster:
            nonlocal lock
            lock = rd.loco.TicketLock(cluster, "lock")
            cluster.program(main, **end)

    run(duration_s=1e-4)
    with raises(rd.Timeout, "deadline_s = 0.0001"):
        run(deadline_s=1e-4)


def test_a_channel_of_a_program_has_to_be_made_before() -> None:
    async def main(node: Node) -> None:
        with raises(rd.InvalidArgument, "before the programs"):
            await node.do(rd.loco.TicketLock(cluster, "late").acquire, node=node.id)

    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        cluster.program(main)
