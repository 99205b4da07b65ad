"""Stores of scripts, in virtual time and over shared memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import pyrdma as rd
from pyrdma.systems.tailwind import Store
from tests.errors import raises

KEYS = [b"key %d" % i for i in range(30)]


def sim(nodes: int = 4) -> rd.Cluster:
    return rd.Cluster.sim(nodes=nodes, profile="r320", seed=1)


def threads(nodes: int = 4) -> rd.Cluster:
    return rd.Cluster.local(nodes=nodes, fabric="shm", mode="thread")


WORLDS = pytest.mark.parametrize("world", [sim, threads], ids=["sim", "shm"])


def small(cluster: rd.Cluster, **options: Any) -> Store:
    """Return a store with little memory, whose lease is long enough for a busy machine."""
    given = {"replicas": 1, "workers": 0, "log_bytes": 4 << 20, "segment_bytes": 1 << 20}
    return Store(cluster, **{**given, "lease_s": 2.0, **options})


def value(key: bytes) -> bytes:
    return b"value of " + key


def test_a_value_is_found_until_it_is_removed() -> None:
    with sim() as cluster:
        store = small(cluster)
        assert store.coordinator == 3
        assert store.read(b"k") is None
        assert store.remove(b"k") is False
        first = store.write(b"k", b"one")
        second = store.write(b"k", b"two")
        assert second > first > 0
        assert store.read(b"k") == b"two"
        assert store.remove(b"k") is True
        assert store.read(b"k") is None
        assert store.write(b"k", b"three") > second, "the version of a key never falls"
        assert store.read(b"k") == b"three"
        store.write(b"", b"")
        assert store.read(b"") == b""


@pytest.mark.parametrize("replication", ["ramcloud", "tailwind"])
@pytest.mark.parametrize("durability", ["completion", "flush"])
@pytest.mark.parametrize("placement", ["random", "best_of_five", "groups"])
def test_a_killed_server_loses_nothing(replication: Any, durability: Any, placement: Any) -> None:
    with sim(6) as cluster:
        store = small(
            cluster,
            replication=replication,
            durability=durability,
            placement=placement,
            replicas=2,
            workers=1,
        )
        versions = [store.write(key, value(key)) for key in KEYS]
        owners = store.tablets()
        crash = store.crash(1)
        assert crash.node == 1
        assert 0 < crash.recovery.objects < len(KEYS)
        assert [store.read(key) for key in KEYS] == [value(key) for key in KEYS]
        assert 1 in set(owners.node)
        assert 1 not in set(store.tablets().node)
        for key, version in zip(KEYS, versions, strict=True):
            assert store.write(key, b"new") > version


@WORLDS
def test_the_servers_recover_what_a_dead_one_had(world: Callable[[], rd.Cluster]) -> None:
    with world() as cluster:
        store = small(cluster)
        store.write(b"k", b"v")
        store.fill(200, value_bytes=50, key_bytes=10, primary=1)
        recovery = store.crash(1).recovery
        assert recovery.objects >= 200
        assert recovery.bytes > 200 * 60
        assert recovery.node == 1
        assert recovery.attempts >= recovery.partitions == 1
        phases = recovery.frame.set_index("phase").seconds
        assert phases[["detected", "inventory", "lease", "replay"]].sum() == pytest.approx(
            phases["total"]
        )
        assert store.read(b"k") == b"v"
        (row,) = store.recoveries().to_dict("records")
        assert (row["node"], row["objects"], row["problem"]) == (1, recovery.objects, "")
        assert row["suspected_ns"] <= row["declared_ns"] < row["ended_ns"]


def test_servers_die_one_after_the_other_and_come_back() -> None:
    with sim(5) as cluster:
        store = small(cluster)
        for key in KEYS:
            store.write(key, value(key))
        for node in (0, 1, 2, 3):
            store.crash(node)
            assert [store.read(key) for key in KEYS] == [value(key) for key in KEYS]
            store.restart(node)
        assert store.recoveries().node.tolist() == [0, 1, 2, 3]


def test_a_coordinator_comes_back_with_its_disk() -> None:
    with sim(5) as cluster:
        store = small(cluster)
        store.write(b"k", b"v")
        before = store.tablets()
        cluster.kill(store.coordinator)
        store.restart(store.coordinator)
        assert store.read(b"k") == b"v"
        assert store.tablets().equals(before)


def test_tablets_cover_all_hashes() -> None:
    with sim() as cluster:
        store = small(cluster)
        assert store.tablets().empty
        assert store.recoveries().empty
        store.write(b"k", b"v")
        tablets = store.tablets()
        assert tablets.columns.tolist() == ["table", "first", "last", "node"]
        assert tablets.node.tolist() == [0, 1, 2]
        assert tablets["first"].iloc[0] == 0
        assert tablets["last"].iloc[-1] == 2**64 - 1
        ends = [int(last) + 1 for last in tablets["last"][:-1]]
        assert ends == [int(first) for first in tablets["first"][1:]]


@pytest.mark.parametrize("replication", ["ramcloud", "tailwind"])
@WORLDS
def test_counters_tell_the_ways_of_replication(
    replication: Any, world: Callable[[], rd.Cluster]
) -> None:
    with world() as cluster:
        store = small(cluster, replication=replication)
        for key in KEYS:
            store.write(key, value(key))
        table = store.counters()
        assert set(table.node) == {0, 1, 2}
        total = table.groupby("counter").value.sum()
        assert total["objects"] == total["appends"] == len(KEYS)
        by_rdma, by_rpc = total["replication_writes"], total["replication_rpcs"]
        assert (by_rdma, by_rpc > 0) == (0, True) if replication == "ramcloud" else by_rdma > 0
        if replication == "tailwind":
            assert by_rpc == 0
        assert total["replicated_bytes"] > sum(len(value(key)) for key in KEYS)
        assert total["dispatch_ns"] > 0


def test_without_replicas_nothing_is_replicated() -> None:
    with sim() as cluster:
        store = small(cluster, replicas=0)
        store.fill(10, primary=0)
        assert store.counters().query("counter == 'replicated_bytes'").value.sum() == 0


def test_a_server_that_came_back_has_lost_its_table() -> None:
    with sim(5) as cluster:
        store = small(cluster, replicas=2)
        store.fill(10, primary=0)
        store.crash(0)
        with raises(rd.Unavailable, "server 0", "recovered", "primary"):
            store.fill(10, primary=0)
        store.restart(0)
        with raises(rd.Unavailable, "server 0", "recovered", "primary"):
            store.fill(10, primary=0)
        store.fill(10)
        assert store.counters().query("counter == 'objects'").value.sum() == 20


def test_a_recovery_without_enough_servers_says_so() -> None:
    with sim() as cluster:
        store = small(cluster, replicas=2)
        store.fill(10, primary=0)
        with raises(rd.Timeout, "server 0", 2, 3, "replicas"):
            store.crash(0, timeout_s=2.0 + 4.0)
        cluster.restart(0)
        store.restart(0)
        assert store.await_recovery(0, 0).objects == 10


def flush(store: Store) -> None:
    """Let a second pass, in which backups write closed replicas to their disks."""
    with pytest.raises(rd.Timeout):
        store.await_recovery(0, 0, timeout_s=1.0)
    assert store.counters().query("counter == 'replicas_flushed'").value.sum() > 3


def test_what_disks_have_is_salvaged_and_the_rest_is_named() -> None:
    with sim() as cluster:
        store = small(cluster, log_bytes=1 << 20, segment_bytes=64 << 10)
        for number in range(400):
            store.write(b"key %d" % number, bytes(2000))
        flush(store)
        for node in range(3):
            cluster.kill(node)
        for node in range(3):
            store.restart(node)
        with pytest.warns(RuntimeWarning, match="without what came behind segment"):
            lost = store.await_recovery(0, 0).lost
        assert lost in store.recoveries().lost.tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for node in (1, 2):
                store.await_recovery(node, 0)
        found = [store.read(b"key %d" % number) for number in range(400)]
        assert 100 < sum(each == bytes(2000) for each in found) < 400
        assert store.problems().empty


def test_damaged_files_of_backups_are_named() -> None:
    faults = {"disk_rot": 0.2}
    with rd.Cluster.sim(4, "r320", seed=1, faults=faults) as cluster:
        store = small(cluster, log_bytes=1 << 20, segment_bytes=64 << 10)
        for number in range(300):
            store.write(b"key %d" % number, bytes(2000))
        flush(store)
        cluster.kill(1)
        store.restart(1)
        problems = store.problems()
        assert set(problems.node) == {1}
        assert problems.problem.str.contains("not used").all()


def test_a_server_that_lives_is_not_recovered() -> None:
    with sim() as cluster:
        store = small(cluster)
        store.write(b"k", b"v")
        with raises(rd.Timeout, "server 0", 1.5):
            store.await_recovery(0, 0, timeout_s=1.5)


def test_a_full_log_says_what_to_give() -> None:
    with sim() as cluster:
        store = small(cluster, log_bytes=1 << 20, segment_bytes=64 << 10)
        with raises(rd.Exhausted, "server 0", 1 << 20, "log_bytes"):
            store.fill(100_000)
        with raises(rd.Exhausted, "log_bytes", "segment_bytes"):
            store.write(b"k", bytes(1 << 20))


def test_a_call_that_timed_out_may_be_repeated() -> None:
    with sim() as cluster:
        store = small(cluster, timeout_s=1e-3)
        for _ in range(2):
            with raises(rd.Timeout, "coordinator", "node 3"):
                store.write(b"k", b"v")


def test_the_default_log_has_room_for_a_million_objects() -> None:
    with sim(2) as cluster:
        store = Store(cluster, replicas=0)
        store.fill(1_000_000, primary=0)
        counters = store.counters().set_index("counter").value
        assert counters["objects"] == 1_000_000
        assert counters["log_used_bytes"] < 0.9 * (256 << 20)


def test_a_node_that_lives_is_not_restarted() -> None:
    with sim() as cluster:
        store = small(cluster)
        store.write(b"k", b"v")
        for node, name in ((1, "server"), (store.coordinator, "coordinator")):
            with raises(rd.InvalidArgument, "node", node, name, "lives", f"cluster.kill({node})"):
                store.restart(node)
        assert store.read(b"k") == b"v"
        cluster.kill(1)
        store.restart(1)
        assert store.read(b"k") == b"v"
        with raises(rd.InvalidArgument, 1, "lives"):
            store.restart(1)


def test_an_idle_store_leaves_the_cores_alone() -> None:
    with threads(4) as cluster:
        store = small(cluster, workers=2)
        store.write(b"k", b"v")
        time.sleep(0.3)
        before = time.process_time()
        time.sleep(1.0)
        assert time.process_time() - before < 4 * 0.25  # of 4 nodes
        began = time.monotonic()
        store.write(b"k", b"w")
        assert time.monotonic() - began < 0.05


def test_threads_cannot_be_started_again() -> None:
    with threads() as cluster:
        store = small(cluster)
        store.crash(0)
        with raises(rd.Unavailable, "node 0", "process"):
            store.restart(0)


def test_processes_have_no_store_of_a_script() -> None:
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        store = Store(cluster, replicas=0)
        with raises(rd.Unavailable, "workloads", "thread"):
            store.read(b"k")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"replicas": 3}, ("replicas", 3, 0, 2)),
        ({"servers": 4}, ("servers", 4, 1, 3)),
        ({"servers": 1}, ("replicas", 1, 0)),
        ({"log_bytes": 1 << 20, "segment_bytes": 1 << 20}, ("log_bytes", 1 << 20, 2 << 20)),
        ({"segment_bytes": 1000}, ("segment_bytes", 1000, 64 << 10)),
        (
            {"segment_bytes": 64 << 10, "log_bytes": 128 << 20},
            ("log_bytes", 128 << 20, 64 << 20, "segments"),
        ),
        ({"group_commit": True, "workers": 1}, ("group_commit", "workers", 1, 0)),
        ({"replication": "raft"}, ("replication", "raft", "ramcloud", "tailwind")),
        ({"lease_s": 0}, ("lease_s", 0)),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], named: tuple[object, ...]) -> None:
    with sim() as cluster, raises(rd.InvalidArgument, *named):
        small(cluster, **options)


def test_wrong_arguments_are_named() -> None:
    with sim() as cluster:
        store = small(cluster)
        for call, named in (
            (lambda: store.write(bytes(65_536), b""), ("key", 65_536, 65_535)),
            (lambda: store.write(b"k", bytes((1 << 20) + 1)), ("value", (1 << 20) + 1, 1 << 20)),
            (lambda: store.read(bytes(70_000)), ("key", 70_000, 65_535)),
            (lambda: store.remove(bytes(70_000)), ("key", 70_000, 65_535)),
            (lambda: store.crash(3), ("node", 3, 0, 2)),
            (lambda: store.crash(4), ("node", 4, 0, 3)),
            (lambda: store.fill(1, primary=3), ("primary", 3, 0, 2)),
            (lambda: store.fill(0), ("objects", 0, 1)),
            (lambda: store.fill(1, value_bytes=7), ("value_bytes", 7, 8)),
            (lambda: store.await_recovery(3, 0), ("node", 3, 0, 2)),
            (lambda: store.restart(4), ("node", 4, 0, 3)),
        ):
            with raises(rd.InvalidArgument, *named):
                call()
