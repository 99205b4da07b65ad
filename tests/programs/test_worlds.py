"""What node programs reach: messages, verbs, systems, faults, histories."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import pyrdma as rd
from pyrdma.check import check
from pyrdma.program import Node
from tests.errors import raises
from tests.programs.support import client, echo, simulated

# ---- messages ----


def test_messages_of_any_length_up_to_the_bound() -> None:
    async def server(node: Node) -> None:
        inbox = await node.bind("data", depth=2, max_bytes=8000)
        async for request in inbox:
            assert request.source == 1
            await request.reply(request.data[::-1])

    async def caller(node: Node) -> None:
        peer = await node.connect("data", to=0)
        for size in (0, 1, 63, 64, 65, 4096, 8000):
            data = bytes(i % 251 for i in range(size))
            assert await peer.call(data) == data[::-1]
        with raises(rd.InvalidArgument, "8001 bytes", "max_bytes"):
            await peer.call(b"x" * 8001)

    with simulated() as cluster:
        cluster.program({0: server, 1: caller})


def test_calls_of_many_tasks_overlap_and_a_small_inbox_holds_them_back() -> None:
    async def server(node: Node) -> None:
        inbox = await node.bind("s", depth=1)
        async for request in inbox:
            await request.reply(request.data)

    async def caller(node: Node) -> None:
        peer = await node.connect("s", to=0)

        async def one(i: int) -> None:
            assert await peer.call(b"%d" % i) == b"%d" % i
            node.count("calls")

        for task in [node.spawn(one(i)) for i in range(100)]:
            await task

    with simulated(3) as cluster:
        assert cluster.program({0: server, "rest": caller}).value("calls") == 200


def test_messages_without_reply() -> None:
    got: list[bytes] = []

    async def receiver(node: Node) -> None:
        inbox = await node.bind("log")
        while (request := await inbox.receive(timeout_s=0.01)) is not None:
            assert not request.wants_reply
            with raises(rd.InvalidArgument, "no reply"):
                await request.reply(b"")
            got.append(request.data)

    async def sender(node: Node) -> None:
        peer = await node.connect("log", to=0)
        for i in range(40):
            await peer.send(b"%d" % i)

    with simulated() as cluster:
        cluster.program({0: receiver, 1: sender})
    assert got == [b"%d" % i for i in range(40)]


def test_a_connection_to_nobody_fails_and_says_what_to_do() -> None:
    async def caller(node: Node) -> None:
        if node.id == 0:
            return
        with raises(rd.Timeout, "node 0", "'nothing'", "node.bind"):
            await node.connect("nothing", to=0, timeout_s=0.001)
        with raises(rd.InvalidArgument, "node is 7"):
            await node.connect("nothing", to=7)

    with simulated() as cluster:
        cluster.program(caller)


def test_a_call_without_an_answer_times_out_and_the_peer_serves_on() -> None:
    async def server(node: Node) -> None:
        inbox = await node.bind("slow")
        async for request in inbox:
            if request.data == b"wait":
                await node.sleep(1e-4)
            await request.reply(request.data)

    async def caller(node: Node) -> None:
        peer = await node.connect("slow", to=0)
        for _ in range(3):
            with pytest.raises(rd.Timeout) as caught:
                await peer.call(b"wait", timeout_s=1e-5)
            assert not caught.value.definite
            assert caught.value.nodes == (0,)
            assert await peer.call(b"next") == b"next"

    with simulated() as cluster:
        cluster.program({0: server, 1: caller})


# ---- verbs, and functions that wait ----


def test_verbs_from_two_nodes() -> None:
    shared: dict[str, Any] = {}

    async def target(node: Node) -> None:
        domain = await node.do(node.device.protection_domain)
        access = rd.verbs.LOCAL_WRITE | rd.verbs.REMOTE_WRITE
        region = await node.do(domain.allocate, 4096, access=access)
        queue = await node.do(node.device.completion_queue, 16)
        pair = await node.do(domain.queue_pair, queue)
        shared.update(region=region, address=pair.address)
        while "peer" not in shared:
            await node.sleep(ns=100)
        await node.do(pair.connect, shared["peer"])
        await node.do(pair.post_receive, [rd.verbs.receive(region.sge(0, 64))])
        shared["ready"] = True
        done = await node.poll(queue)
        assert len(done) == 1
        assert bytes(region.array[:5]) == b"hello"

    async def source(node: Node) -> None:
        domain = await node.do(node.device.protection_domain)
        region = await node.do(domain.allocate, 4096)
        queue = await node.do(node.device.completion_queue, 16)
        pair = await node.do(domain.queue_pair, queue)
        shared["peer"] = pair.address
        while "ready" not in shared:
            await node.sleep(ns=100)
        await node.do(pair.connect, shared["address"])
        region.array[:5] = list(b"hello")
        assert len(await node.poll(queue, timeout_s=1e-6)) == 0
        assert pair.post([rd.verbs.send(region.sge(0, 5))]) == 1
        start = node.now()
        assert len(await node.poll(queue)) == 1
        node.record("send", node.now() - start)

    with simulated() as cluster:
        assert cluster.program({0: target, 1: source}).latency("send").max > 500


def test_tasks_may_wait_for_one_queue_beside_each_other() -> None:
    async def main(node: Node) -> None:
        queue = await node.do(node.device.completion_queue, 16)
        first = node.spawn(wait_for(node, queue))
        assert len(await node.do(queue.poll, timeout_s=1e-4)) == 0
        assert len(await node.poll(queue, timeout_s=1e-4)) == 0
        await first

    async def wait_for(node: Node, queue: Any) -> None:
        assert len(await node.do(queue.poll, timeout_s=1e-3)) == 0

    with simulated() as cluster:
        cluster.program({0: main})


def test_tasks_may_use_one_queue_pair_while_another_connects_it() -> None:
    async def main(node: Node) -> None:
        domain = await node.do(node.device.protection_domain)
        region = await node.do(domain.allocate, 64)
        queue = await node.do(node.device.completion_queue, 16)
        pair = await node.do(domain.queue_pair, queue)
        connects = node.spawn(connect(node, pair))
        await node.sleep(ns=1)
        with raises(rd.Error, "queue pair"):
            pair.post([rd.verbs.send(region.sge(0, 5))])
        await connects
        await node.do(pair.modify, rd.verbs.QpState.ERROR)

    async def connect(node: Node, pair: Any) -> None:
        await node.do(pair.connect, pair.address)

    with simulated(1) as cluster:
        cluster.program(main)


def test_what_a_task_waits_for_is_not_closed() -> None:
    async def main(node: Node) -> None:
        queue = await node.do(node.device.completion_queue, 16)
        for wait in (waits, waits_in_a_function):
            task = node.spawn(wait(node, queue))
            await node.sleep(ns=1)
            with raises(rd.InvalidArgument, "a call that waits", "let the call end"):
                await node.do(queue.close)
            await task
        await node.do(queue.close)

    async def waits(node: Node, queue: Any) -> None:
        assert len(await node.poll(queue, timeout_s=1e-4)) == 0

    async def waits_in_a_function(node: Node, queue: Any) -> None:
        assert len(await node.do(queue.poll, timeout_s=1e-4)) == 0

    with simulated(1) as cluster:
        cluster.program(main)


def test_what_a_new_object_is_made_of_is_not_closed_meanwhile() -> None:
    async def main(node: Node) -> None:
        domain = await node.do(node.device.protection_domain)
        queue = await node.do(node.device.completion_queue, 16)
        task = node.spawn(makes(node, domain, queue))
        await node.sleep(ns=1)
        for used in (queue, domain):
            with raises(rd.InvalidArgument, "let the call end"):
                await node.do(used.close)
        pair = await task
        await node.do(pair.close)
        allocates = node.spawn(allocate(node, domain))
        await node.sleep(ns=1)
        with raises(rd.InvalidArgument, "let the call end"):
            await node.do(domain.close)
        await allocates

    async def makes(node: Node, domain: Any, queue: Any) -> Any:
        return await node.do(domain.queue_pair, queue)

    async def allocate(node: Node, domain: Any) -> None:
        await node.do(domain.allocate, 1 << 20)

    with simulated(1) as cluster:
        cluster.program(main)


def test_an_operation_that_outlives_its_program_says_so() -> None:
    kept: list[Any] = []

    class Steps:
        def wait(self) -> None: ...

        async def steps(self) -> None: ...

        wait.__pyrdma_steps__ = steps  # type: ignore[attr-defined]

    async def keeps(node: Node) -> None:
        kept.append(node.do(Steps().wait))

    async def awaits(_: Node) -> None:
        with raises(rd.Error, "program"):
            await kept[0]

    with simulated(1) as cluster:
        cluster.program(keeps)
        cluster.program(awaits)
        cluster.program(keeps)
    with raises(rd.Error, "program"):
        next(kept[1])


def test_a_call_that_would_wait_is_refused_in_a_turn() -> None:
    async def wrong(node: Node) -> None:
        with raises(rd.InvalidArgument, "node.do"):
            node.device.protection_domain()
        with raises(rd.InvalidArgument, "node.do"):
            node.device.sleep(1.0)
        await node.sleep(ns=1)
        assert cluster.now_ns > 0

    with simulated(1) as cluster:
        cluster.program(wrong)


def test_do_raises_the_errors_of_the_function() -> None:
    async def main(node: Node) -> None:
        with raises(ZeroDivisionError):
            await node.do(lambda: 1 // 0)
        assert await node.do(max, [1, 5, 3], key=lambda x: -x) == 1
        with raises(rd.InvalidArgument, "before the programs"):
            await node.do(cluster.run, rd.workload.Idle())

    with simulated() as cluster:
        cluster.program(main)


def test_objects_that_a_program_drops_are_freed() -> None:
    async def main(node: Node) -> None:
        for _ in range(20):
            domain = await node.do(node.device.protection_domain)
            await node.do(domain.allocate, 1 << 16)
        gc.collect()

    with simulated(1) as cluster:
        cluster.program(main)
        cluster.program(main)


# ---- faults ----


def test_a_killed_node_ends_its_tasks_and_a_restart_runs_the_function_anew() -> None:
    incarnations: list[int] = []
    failures: list[str] = []

    async def server(node: Node) -> None:
        incarnations.append(node.incarnation)
        await echo(node)

    async def caller(node: Node) -> None:
        peer = await node.connect("echo", to=0)
        ended = 0
        while ended < 3:
            try:
                await peer.call(b"x", timeout_s=0.1)
                ended += len(incarnations) == 2
            except rd.Unavailable as error:
                failures.append(str(error))
                peer = await node.connect("echo", to=0)
            await node.sleep(ns=100_000)

    with simulated() as cluster:
        cluster.kill(0, after_s=0.015)
        cluster.restart(0, after_s=0.030)
        cluster.program({0: server, 1: caller})
    assert incarnations == [0, 1]
    assert len(failures) == 1
    assert "node 0" in failures[0]


def test_a_program_can_inject_faults_itself() -> None:
    async def main(node: Node) -> None:
        if node.id == 1:
            await node.sleep(1.0)
        await node.sleep(1e-5)
        await node.do(cluster.kill, 1)

    with simulated() as cluster:
        cluster.program(main, deadline_s=0.5)


def test_lossy_networks_delay_messages_and_lose_none() -> None:
    with simulated(3, faults={"loss": 0.05, "delay": 0.05}) as cluster:
        result = cluster.program({0: echo, "rest": client})
        assert cluster.fault_counters()["loss"][1] > 0
    assert result.latency("rpc").count == 200


# ---- histories ----


def test_a_history_of_a_program_is_checked() -> None:
    async def register(node: Node) -> None:
        value = None
        inbox = await node.bind("register")
        async for request in inbox:
            if request.data:
                value = int(request.data)
            await request.reply(b"" if value is None else b"%d" % value)

    async def user(node: Node) -> None:
        peer = await node.connect("register", to=0)
        for i in range(20):
            if node.random.random() < 0.5:
                write = node.invoke("write", value=100 * node.id + i)
                await peer.call(b"%d" % (100 * node.id + i))
                write.ok()
            else:
                read = node.invoke("read")
                got = await peer.call()
                read.ok(int(got) if got else None)

    with simulated(4) as cluster:
        result = cluster.program({0: register, "rest": user}, model="register")
    verdict = check(result.history())
    assert verdict.ok
    assert verdict.operations == 60
