"""Servers and clients of scripts: sessions, handlers, and every bad use."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import pyrdma as rd
from pyrdma.errors import InvalidArgument, Timeout, Unavailable
from tests.errors import raises

Cluster = rd.Cluster


def local(nodes: int = 2) -> Cluster:
    return rd.Cluster.local(nodes=nodes, fabric="shm", mode="thread")


@pytest.fixture(params=["sim", "shm"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "shm":
        with local(3) as opened:
            yield opened
    else:
        with rd.Cluster.sim(nodes=3, profile="cx5", seed=1) as simulated:
            yield simulated


def test_native_handlers_answer(cluster: Cluster) -> None:
    rpc = rd.erpc.Mesh(cluster, preset="paper")
    rpc.serve(1, 1, rd.erpc.Echo())
    rpc.serve(1, 2, rd.erpc.Sized(5000))
    rpc.serve(2, 1, rd.erpc.Spin(ns=2000))
    with rpc.connect(node=0, to=1) as near, rpc.connect(node=0, to=2) as far:
        assert near.call(1, b"hello") == b"hello"
        assert near.call(1, b"") == b""
        assert near.call(2, b"x") == bytes(5000)
        assert far.call(1, b"slow") == b"slow"
        texts = [str(i).encode() * i for i in range(100)]
        assert near.calls(1, texts) == texts
        long = bytes(range(256)) * 8192
        assert near.call(1, long, most=len(long)) == long


def test_what_fails_says_whether_it_ran(cluster: Cluster) -> None:
    rpc = rd.erpc.Mesh(cluster)
    rpc.serve(1, 1, rd.erpc.Sized(100))
    session = rpc.connect(node=0, to=1)
    with raises(rd.erpc.RpcFailed, "type 9", "node 1", "mesh.serve(1, 9, handler)") as none:
        session.call(9, b"")
    assert none.value.definite
    assert none.value.nodes == (1,)
    with raises(rd.erpc.RpcFailed, "most") as long:
        session.call(1, b"", most=99)
    assert not long.value.definite
    found = session.calls(1, [b"", b""], return_errors=True)
    assert found == [bytes(100)] * 2


def test_a_dead_node_ends_its_sessions(cluster: Cluster) -> None:
    rpc = rd.erpc.Mesh(cluster)
    rpc.serve(1, 1, rd.erpc.Echo())
    session = rpc.connect(node=0, to=1)
    assert session.call(1, b"1") == b"1"
    cluster.kill(1)
    with pytest.raises(rd.erpc.RpcFailed) as lost:
        session.call(1, b"2", timeout_s=20)
    assert lost.value.outcome == "session lost"
    assert not lost.value.definite
    with pytest.raises(rd.erpc.RpcFailed) as after:
        session.call(1, b"3")
    assert after.value.outcome == "not sent"
    assert after.value.definite
    with raises(Timeout, "node 1") as dead:
        rpc.connect(node=0, to=1, timeout_s=0.05)
    assert dead.value.nodes == (1,)


def test_bad_use_names_the_fix(cluster: Cluster) -> None:
    rpc = rd.erpc.Mesh(cluster)
    rpc.serve(1, 1, rd.erpc.Echo())
    with raises(InvalidArgument, "type 1", "another type"):
        rpc.serve(1, 1, rd.erpc.Echo())
    with raises(InvalidArgument, "node is 3", "0 to 2"):
        rpc.serve(3, 1, rd.erpc.Echo())
    with raises(InvalidArgument, "node", "to", 1):
        rpc.connect(node=1, to=1)
    with raises(InvalidArgument, "type 2", "Mesh(cluster, workers=1)"):
        rpc.serve(1, 2, rd.erpc.Echo(), in_worker=True)
    with raises(InvalidArgument, 7, "Echo", "function"):
        rpc.serve(1, 2, 7)  # type: ignore[arg-type]
    with raises(InvalidArgument, "ns", -1):
        rd.erpc.Spin(ns=-1)
    session = rpc.connect(node=0, to=1)
    with raises(InvalidArgument, (8 << 20) + 1, "8388608 bytes"):
        session.call(1, bytes((8 << 20) + 1))
    with raises(InvalidArgument, "requests[0]", "text", "bytes"):
        session.calls(1, ["text"])  # type: ignore[list-item]
    session.close()
    session.close()
    with raises(InvalidArgument, "mesh.connect(node=0, to=1)"):
        session.call(1, b"")


def test_a_python_function_serves_outside_of_the_simulator() -> None:
    with local() as cluster:
        rpc = rd.erpc.Mesh(cluster, workers=1)

        def handler(request: bytes) -> bytes:
            if request == b"bad":
                raise ValueError("no such key")
            return request[::-1]

        rpc.serve(1, 1, handler)
        rpc.serve(1, 2, lambda request: request.decode())  # type: ignore[arg-type, return-value]
        session = rpc.connect(node=0, to=1)
        assert session.call(1, b"abc") == b"cba"
        with raises(rd.erpc.RpcFailed, "ValueError: no such key") as failed:
            session.call(1, b"bad")
        assert not failed.value.definite
        with raises(rd.erpc.RpcFailed, "bytes"):
            session.call(2, b"bad")
        assert session.call(1, b"on") == b"no"
    with rd.Cluster.sim(nodes=2, profile="cx5") as simulated:
        rpc = rd.erpc.Mesh(simulated, workers=1)
        with raises(Unavailable, "Echo", "Sized", "Spin"):
            rpc.serve(1, 1, handler)


def test_a_handler_that_does_not_answer_in_time() -> None:
    ready = threading.Event()
    with local() as cluster:
        rpc = rd.erpc.Mesh(cluster, workers=1)
        rpc.serve(1, 1, lambda _: b"late" if ready.wait(10) else b"never")
        session = rpc.connect(node=0, to=1)
        with raises(rd.erpc.RpcTimeout, "timeout_s", 0.1) as late:
            session.call(1, b"", timeout_s=0.1)
        assert not late.value.definite
        with raises(InvalidArgument, "session", "node 1"):
            session.close()
        ready.set()
        assert session.call(1, b"") == b"late"
        session.close()


def test_handlers_call_other_nodes_and_threads_share_a_session() -> None:
    with local(3) as cluster:
        rpc = rd.erpc.Mesh(cluster, workers=2)
        rpc.serve(2, 1, lambda request: request + b"2")
        further = rpc.connect(node=1, to=2)
        rpc.serve(1, 1, lambda request: further.call(1, request + b"1"))
        session = rpc.connect(node=0, to=1)
        found: list[bytes] = []
        threads = [
            threading.Thread(target=lambda i=i: found.append(session.call(1, b"%d:" % i)))
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [b"%d:12" % i for i in range(8)]


def test_a_cluster_that_closes_ends_a_handler_that_calls() -> None:
    begun = threading.Event()
    with local(3) as cluster:
        rpc = rd.erpc.Mesh(cluster, workers=1)
        silent = rpc.connect(node=1, to=2)

        def handler(request: bytes) -> bytes:
            begun.set()
            time.sleep(0.3)
            return silent.call(1, request)

        rpc.serve(1, 1, handler)
        session = rpc.connect(node=0, to=1)
        with pytest.raises(rd.erpc.RpcTimeout):
            session.call(1, b"", timeout_s=0.1)
        assert begun.is_set()


def test_equal_seeds_take_equal_virtual_times() -> None:
    def times() -> int:
        with rd.Cluster.sim(nodes=2, profile="cx4", seed=3) as cluster:
            rpc = rd.erpc.Mesh(cluster)
            rpc.serve(1, 1, rd.erpc.Echo())
            session = rpc.connect(node=0, to=1)
            session.calls(1, [b"x" * 32] * 10)
            return cluster.now_ns

    assert times() == times()


def test_other_processes_have_no_scripted_endpoints() -> None:
    cluster = rd.Cluster.local(nodes=2, fabric="shm", mode="process")
    with cluster, raises(Unavailable, "mode='thread'"):
        rd.erpc.Mesh(cluster).serve(1, 1, rd.erpc.Echo())
