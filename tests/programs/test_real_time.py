"""Node programs in real time, over shared memory: the same functions as in virtual time."""

from __future__ import annotations

import functools
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma.check import check
from pyrdma.processes import ProcessCluster
from pyrdma.program import Node
from tests.errors import raises
from tests.kills import killed_in_run
from tests.programs.support import (
    client,
    client_of_itself,
    echo,
    register,
    uses_register,
    waits_for_ever,
)


def threads(nodes: int = 2) -> Any:
    return rd.Cluster.local(nodes=nodes, fabric="shm", mode="thread")


def test_calls_over_shared_memory() -> None:
    with threads(3) as cluster:
        result = cluster.program({0: echo, "rest": client}, deadline_s=20)
    assert result.latency("rpc").count == 200


def test_tasks_of_a_node_and_functions_that_wait() -> None:
    async def child(node: Node) -> int:
        await node.sleep(0.01)
        return node.id

    async def main(node: Node) -> None:
        start = node.now()
        tasks = [node.spawn(child(node)) for _ in range(3)]
        assert [await task for task in tasks] == [node.id] * 3
        assert node.now() - start < 5e9
        domain = await node.do(node.device.protection_domain)
        region = await node.do(domain.allocate, 64)
        assert region.size == 64
        forever = node.spawn(node_forever(node))
        await node.sleep(0.002)
        forever.cancel()
        with pytest.raises(rd.Cancelled):
            await forever

    async def node_forever(node: Node) -> None:
        while True:
            await node.sleep(1.0)

    with threads(2) as cluster:
        cluster.program(main, deadline_s=20)


def test_a_deadline_and_an_error_end_the_program() -> None:
    async def stuck(node: Node) -> None:
        await node.event().wait()

    async def fails(node: Node) -> None:  # noqa: ARG001
        raise KeyError("nothing")

    with threads() as cluster:
        with raises(rd.Timeout, "deadline_s", "stuck"):
            cluster.program(stuck, deadline_s=0.05)
        with pytest.raises(KeyError):
            cluster.program({0: fails, 1: stuck}, deadline_s=20)


def test_a_cluster_closes_when_its_programs_have_ended() -> None:
    async def closes(node: Node) -> None:  # noqa: ARG001
        with raises(rd.InvalidArgument, "still run"):
            cluster.close()

    with threads(1) as cluster:
        cluster.program(closes, deadline_s=20)
        cluster.program(client_of_itself, deadline_s=20)  # the refused close changed nothing


# ---- a process per node: the functions are found by file and name ----


async def fails(node: Node) -> None:
    await node.sleep(0.001)
    raise KeyError(node.id)


async def ends_late(node: Node) -> None:
    """A server must not end while another node may still call."""
    peer = await node.connect("echo", to=0)
    await node.sleep(0.3)
    for _ in range(3):
        await peer.call(b"x")
        await node.sleep(0.15)
    node.count("calls", 3)


def test_processes_run_the_same_functions() -> None:
    with rd.Cluster.local(nodes=4) as cluster:
        result = cluster.program({0: echo, (1, 2): client}, deadline_s=20)
        assert result.latency("rpc").count == 200
        assert cluster.program({0: echo, "rest": client}, deadline_s=20).latency("rpc").count == 300


def test_nodes_begin_when_all_have_loaded_their_functions(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\ntime.sleep(0.5)\n"
        "async def main(node):\n    async for _ in await node.bind('service'):\n        pass\n"
    )
    (tmp_path / "quick.py").write_text(
        "async def main(node):\n    await node.connect('service', to=0, timeout_s=0.2)\n"
    )
    slow, quick = (
        runpy.run_path(str(tmp_path / f"{name}.py"))["main"] for name in ("slow", "quick")
    )
    with rd.Cluster.local(nodes=2) as cluster:
        cluster.program({0: slow, 1: quick}, deadline_s=20)


def test_servers_wait_for_processes_that_pause() -> None:
    with rd.Cluster.local(nodes=3) as cluster:
        result = cluster.program({0: echo, 1: client, 2: ends_late}, deadline_s=20)
    assert result.value("calls") == 3


def test_histories_of_processes_are_one() -> None:
    with rd.Cluster.local(nodes=3) as cluster:
        result = cluster.program({0: register, "rest": uses_register}, model="register")
    assert check(result.history()).operations == 40
    assert check(result.history()).ok


def test_errors_of_processes_name_node_and_place() -> None:
    with rd.Cluster.local(nodes=2) as cluster, raises(rd.Error, "1", "KeyError") as caught:
        cluster.program({1: fails}, deadline_s=20)
    assert Path(__file__).name in str(caught.value)
    with rd.Cluster.local(nodes=2) as cluster, raises(rd.Timeout, "waits_for_ever", "0.05"):
        cluster.program(waits_for_ever, deadline_s=0.05)


SCRIPT = """
import os, signal, sys, threading
import pyrdma as rd

async def spins(node):
    await node.sleep(0.001)
    while True:
        pass

async def short(node):
    for _ in range(2000):
        await node.sleep(ns=1)

if __name__ == "__main__":
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    make = {"sim": lambda: rd.Cluster.sim(nodes=2, profile="cx5")}
    local = lambda: rd.Cluster.local(nodes=2, mode=sys.argv[1])
    with make.get(sys.argv[1], local)() as cluster:
        try:
            cluster.program(spins, deadline_s=1000)
        finally:
            if sys.argv[1] == "sim":
                cluster.program(short)
"""


@pytest.mark.parametrize("mode", ["sim", "thread", "process"])
def test_ctrl_c_ends_programs_that_never_wait(mode: str, tmp_path: Path) -> None:
    script = tmp_path / "spins.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), mode]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "KeyboardInterrupt" in ended.stderr.splitlines()[-2:], ended.stderr


def test_a_file_that_makes_a_cluster_when_imported_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import pyrdma as rd\n"
        "async def main(node):\n"
        "    pass\n"
        "with rd.Cluster.local(nodes=2) as cluster:\n"
        "    cluster.program(main)\n"
    )
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "InvalidArgument" in ended.stderr
    assert "unguarded.py makes a cluster" in ended.stderr
    assert '__name__ == "__main__"' in ended.stderr


def test_processes_need_functions_of_files() -> None:
    async def local(node: Node) -> None:
        await node.sleep(0.1)

    with rd.Cluster.local(nodes=1) as cluster:
        with raises(rd.InvalidArgument, "mode='thread'"):
            cluster.program(local)
        assert cluster.program({0: register}, deadline_s=20).samples == []


async def takes_arguments(node: Node, depth: int, options: dict[str, Any]) -> None:
    await node.sleep(0.001)
    node.count("depth", depth)
    node.count("options", len(options))


def test_arguments_of_processes_are_plain_values() -> None:
    main = functools.partial(takes_arguments, depth=8, options={"a": [None, 1.5]})
    with rd.Cluster.local(nodes=1) as cluster:
        result = cluster.program({0: main}, deadline_s=20)
        assert (result.value("depth"), result.value("options")) == (8, 1)
        wrong: tuple[Any, ...] = ((1, 2), {1: 2}, float("nan"), 2**64, cluster)
        for value in wrong:
            with raises(rd.InvalidArgument, "takes_arguments", "lists and dicts"):
                cluster.program(functools.partial(takes_arguments, depth=8, options=value))


def test_a_killed_process_ends_the_program() -> None:
    with rd.Cluster.local(nodes=2) as cluster:
        assert isinstance(cluster, ProcessCluster)
        with killed_in_run(cluster, 1, after_s=0.1), raises(rd.NodeEnded, "node 1"):
            cluster.program(waits_for_ever, deadline_s=20)


OWN = """\
import pyrdma as rd
from experiments import RATE

async def main(node):
    node.count("rate", RATE)

if __name__ == "__main__":
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        print(cluster.program({0: main}).value("rate"))
"""


def test_a_user_may_have_a_package_of_the_name_of_ours(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/__init__.py").write_text("RATE = 5\n")
    (tmp_path / "own.py").write_text(OWN)
    words = [sys.executable, "own.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["5.0"], done.stderr
