"""Channels from a script: made, used and misused, in virtual time and over shared memory."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pyrdma as rd
from pyrdma.cluster import InProcess
from tests.errors import raises, unnamed

EXAMPLES = Path(__file__).resolve().parents[3] / "experiments" / "examples"


@pytest.fixture(params=["sim", "threads"])
def cluster(request: pytest.FixtureRequest) -> Iterator[InProcess]:
    made: rd.Cluster
    if request.param == "sim":
        made = rd.Cluster.sim(nodes=3, profile="c6525-25g", memory="weak")
    else:
        made = rd.Cluster.local(nodes=3, mode="thread")
    assert isinstance(made, InProcess)
    with made:
        yield made


def test_words_are_shared(cluster: rd.Cluster) -> None:
    counter = rd.loco.AtomicVar(cluster, "counter", host=1)
    assert [counter.fetch_add(2, node=node) for node in range(3)] == [0, 2, 4]
    assert counter.fetch_add(-1, node=0) == 6
    assert counter.compare_swap(5, 9, node=2) == 5
    assert counter.compare_swap(5, 1, node=2) == 9
    assert counter.load(node=1) == 9


def test_an_owned_variable_is_pushed_and_pulled(cluster: rd.Cluster) -> None:
    pushed = rd.loco.OwnedVar(cluster, "pushed", owner=2)
    pushed.store(-7)
    assert pushed.load(node=2) == -7
    assert pushed.load(node=0) == 0
    pushed.push()
    assert [pushed.load(node=node) for node in range(3)] == [-7] * 3
    pulled = rd.loco.OwnedVar(cluster, "pulled", owner=0)
    pulled.store(11)
    assert pulled.pull(node=1) == 11
    assert pulled.load(node=2) == 0


def test_a_region_is_read_and_written_by_all(cluster: rd.Cluster) -> None:
    region = rd.loco.SharedRegion(cluster, "region", size=5000)
    region.write(b"to two", node=0, to=2, offset=100)
    assert region.read(6, node=1, of=2, offset=100) == b"to two"
    assert region.read(6, node=1, of=0, offset=100) == bytes(6)
    with raises(rd.InvalidArgument, 10, 4991, 5000):
        region.read(10, node=0, of=1, offset=4991)
    with raises(rd.InvalidArgument, "of", 3, 2):
        region.read(1, node=0, of=3)
    with raises(rd.InvalidArgument, "block_bytes"):
        region.read(4500, node=0, of=1)


def test_a_barrier_takes_time_at_every_node(cluster: rd.Cluster) -> None:
    barrier = rd.loco.Barrier(cluster, "bar")
    for _ in range(5):
        waits = barrier.wait()
        assert len(waits) == 3
        assert min(waits) > 0


def test_a_lock_is_held_by_one(cluster: rd.Cluster) -> None:
    lock = rd.loco.TicketLock(cluster, "lock")
    for node in (0, 2, 1, 1):
        with lock.held(node):
            pass
    lock.acquire(node=1)
    with raises(rd.InvalidArgument, "lock"):
        lock.release(node=2)
    lock.release(node=1)


def test_locks_and_stores_have_presets(cluster: rd.Cluster) -> None:
    lock = rd.loco.TicketLock(cluster, "lock", preset="paper")
    store = rd.loco.KvStore(cluster, "kv", keys=30, fill=0.5, preset="paper")
    for node in range(3):
        with lock.held(node):
            assert store.update(node, 7, node=2)
    assert [store.lookup(key, node=0) for key in range(4)] == [7, 7, 7, 3]
    for channel in (rd.loco.TicketLock, rd.loco.KvStore):
        with raises(rd.InvalidArgument, "papers", "paper", "best"):
            channel(cluster, "wrong", preset="papers")  # type: ignore[arg-type]


def test_a_queue_is_first_in_first_out(cluster: rd.Cluster) -> None:
    queue = rd.loco.SharedQueue(cluster, "queue", capacity=5)
    assert queue.pop(node=1) is None
    pushed = [queue.push(number, node=number % 3) for number in range(-2, 5)]
    assert pushed == [True] * 5 + [False] * 2
    assert [queue.pop(node=node) for node in (2, 0, 1)] == [-2, -1, 0]


def test_a_store_keeps_what_it_is_told(cluster: rd.Cluster) -> None:
    store = rd.loco.KvStore(cluster, "kv", keys=30, fill=0.5)
    assert [store.lookup(key, node=1) for key in (0, 14, 15)] == [0, 14, None]
    assert store.insert(99, 7, node=2)
    assert not store.insert(99, 8, node=0)
    assert store.update(99, 2**64 - 1, node=0)
    assert [store.lookup(99, node=node) for node in range(3)] == [2**64 - 1] * 3
    assert store.remove(99, node=1)
    assert not store.remove(99, node=1)
    assert not store.update(99, 1, node=1)
    assert store.lookup(99, node=0) is None
    for key in range(100, 105):
        assert store.insert(key, key, node=0)
    with raises(rd.Exhausted, 10, 0):
        store.insert(106, 0, node=0)
    with raises(rd.InvalidArgument, "fill", 2):
        rd.loco.KvStore(cluster, "other", fill=2)


def test_misuse_is_named(cluster: rd.Cluster) -> None:
    counter = rd.loco.AtomicVar(cluster, "taken", host=0)
    counter.load(node=0)
    with raises(rd.InvalidArgument, "taken"):
        rd.loco.Barrier(cluster, "taken").wait()
    with raises(rd.InvalidArgument, 120, 119):
        rd.loco.Barrier(cluster, "x" * 120).wait()
    with raises(rd.InvalidArgument, "node", 3, 2):
        counter.load(node=3)
    for wrong in (-1, "1", 0.5):
        with raises(rd.InvalidArgument, "node", repr(wrong)):
            counter.load(node=wrong)  # type: ignore[arg-type]
    with raises(rd.InvalidArgument, "host", 3, 2):
        rd.loco.AtomicVar(cluster, "elsewhere", host=3)
    with raises(rd.InvalidArgument, "value", "b'x'"):
        rd.loco.KvStore(cluster, "kv").insert(1, b"x", node=0)  # type: ignore[arg-type]


def test_native_loops_drive_a_store_of_a_script() -> None:
    with rd.Cluster.sim(nodes=2, profile="c6525-25g", seed=1) as cluster:
        store = rd.loco.KvStore(cluster, "kv", keys=1000, fill=0.5, preset="paper")
        load = rd.workload.Ycsb(store, reads=0.5, threads=2, window=8)
        assert (load.keys, load.fill, load.preset) == (1000, 0.5, "paper")
        assert cluster.run(load, duration_s=2e-4).value("rate") > 0


@contextmanager
def unavailable(node: int) -> Iterator[None]:
    """Expect an error that blames this node alone, and names no other."""
    with raises(rd.Unavailable, node) as caught:
        yield
    assert caught.value.nodes == (node,)
    assert not caught.value.definite
    for other in {0, 1, 2} - {node}:
        assert unnamed(caught.value, other) == [str(other)]


def test_a_dead_host_is_named(cluster: InProcess) -> None:
    counter = rd.loco.AtomicVar(cluster, "counter", host=2)
    counter.fetch_add(1, node=0)
    cluster.kill(2)
    with unavailable(2):
        counter.fetch_add(1, node=0)
    with unavailable(2):
        counter.load(node=1)


def test_a_dead_owner_is_named_by_a_pull(cluster: InProcess) -> None:
    var = rd.loco.OwnedVar(cluster, "var", owner=2)
    var.store(5)
    assert var.pull(node=0) == 5
    cluster.kill(2)
    for node in (0, 1):
        with unavailable(2):
            var.pull(node=node)
    for call in (var.push, lambda: var.store(6)):
        with raises(rd.Unavailable, 2) as caught:
            call()
        assert caught.value.nodes == (2,)


def test_a_dead_reader_is_named_by_a_push(cluster: InProcess) -> None:
    var = rd.loco.OwnedVar(cluster, "var", owner=2)
    var.store(5)
    var.push()
    cluster.kill(0)
    var.store(6)
    for _ in range(2):
        with unavailable(0):
            var.push()
    assert var.load(node=1) == 6


def test_a_dead_node_fails_only_the_requests_to_it(cluster: InProcess) -> None:
    region = rd.loco.SharedRegion(cluster, "region", size=64)
    region.write(b"before", node=0, to=2)
    cluster.kill(2)
    with unavailable(2):
        region.write(b"after", node=0, to=2)
    with unavailable(2):
        region.read(5, node=0, of=2)
    region.write(b"alive", node=0, to=1)
    assert region.read(5, node=0, of=1) == b"alive"


def test_a_release_to_a_dead_host_is_not_silent(cluster: InProcess) -> None:
    lock = rd.loco.TicketLock(cluster, "lock")
    lock.acquire(node=1)
    cluster.kill(0)
    with unavailable(0):
        lock.release(node=1)


def test_a_closed_cluster_says_so(cluster: rd.Cluster) -> None:
    counter = rd.loco.AtomicVar(cluster, "counter", host=0)
    counter.load(node=0)
    cluster.close()
    with pytest.raises(rd.Error):
        counter.load(node=0)


def test_equal_seeds_give_equal_channels() -> None:
    prints = []
    for _ in range(2):
        with rd.Cluster.sim(nodes=4, profile="c6525-25g", memory="weak", seed=3) as cluster:
            barrier = rd.loco.Barrier(cluster, "bar")
            waits = [barrier.wait() for _ in range(10)]
            prints.append((waits, cluster.fingerprint))
    assert prints[0] == prints[1]


def test_other_processes_have_channels_for_workloads_only() -> None:
    with (
        rd.Cluster.local(nodes=2) as cluster,
        pytest.raises(rd.Unavailable),
    ):
        rd.loco.Barrier(cluster, "bar").wait()


@pytest.mark.parametrize("script", ["barrier_latency.py", "custom_channel/run.py"])
def test_the_examples_run(script: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_the_example_of_a_lock_loses_increments_only_without_it() -> None:
    script = [sys.executable, str(EXAMPLES / "locked_counter.py")]
    ran = subprocess.run(script, capture_output=True, text=True, timeout=300, check=True)
    assert [int(number) for number in re.findall(r"\d+", ran.stdout)][:3] == [150, 100, 0]


def test_a_parameter_of_one_lock_is_refused_for_another() -> None:
    with raises(rd.InvalidArgument, "handovers", 16, "test_and_set", "loco"):
        rd.workload.LocoLock(system="test_and_set", handovers=16)
