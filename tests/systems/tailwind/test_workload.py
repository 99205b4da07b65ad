"""Loads of a store, whose histories are judged, in virtual time and over shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import check
from pyrdma.cluster import SimulatedCluster
from pyrdma.systems import parts
from pyrdma.systems.tailwind import validations
from tests.errors import raises


def sim(nodes: int) -> rd.Cluster:
    return rd.Cluster.sim(nodes=nodes, profile="r320", seed=1)


def threads(nodes: int) -> rd.Cluster:
    return rd.Cluster.local(nodes=nodes, fabric="shm", mode="thread")


def processes(nodes: int) -> rd.Cluster:
    return rd.Cluster.local(nodes=nodes, fabric="shm", mode="process")


def load(**settings: Any) -> rd.workload.TailwindStore:
    """Return a load of two servers; its lease is long enough for a busy machine."""
    given = {"servers": 2, "replicas": 1, "workers": 1, "lease_ms": 60_000, "keys": 50}
    memory = {"log_bytes": 16 << 20, "segment_bytes": 1 << 20}
    return rd.workload.TailwindStore(**{**given, **memory, **settings})


@pytest.mark.parametrize("replication", ["ramcloud", "tailwind"])
@pytest.mark.parametrize("world", [sim, threads], ids=["sim", "shm"])
def test_what_clients_see_is_linearizable(
    world: Callable[[int], rd.Cluster], replication: str
) -> None:
    workload = load(replication=replication, reads=0.5, in_flight=4, history=True, iterations=300)
    with world(5) as cluster:
        result = cluster.run(workload, duration_s=30.0)
    verdict = check.check(result.history())
    assert verdict.ok, verdict.text
    assert verdict.operations >= 2 * 300
    assert result.value("ops") >= 300
    clients = {s.node for s in result.samples if s.metric == "ops"}
    assert clients == {3, 4}
    assert result.latency("put").count + result.latency("get").count >= 2 * 300
    by_rdma, by_rpc = (_total(result, f"replication_{way}") for way in ("writes", "rpcs"))
    assert (by_rdma > 0, by_rpc > 0) == (replication == "tailwind", replication == "ramcloud")


def _total(result: rd.Result, metric: str) -> float:
    return sum(s.value for s in result.samples if s.metric == metric)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_primary_has_all_the_work(workers: int) -> None:
    with sim(4) as cluster:
        result = cluster.run(load(workers=workers, primaries=1, in_flight=8), duration_s=0.002)
    of_servers = {s.node: s.value for s in result.samples if s.metric == "appends"}
    assert of_servers[0] > 100
    assert of_servers[1] == 0
    busy = {s.node: s.value for s in result.samples if s.metric == "worker_cores"}
    assert (busy[0] > 0) == (workers > 0)


def test_one_seed_is_one_run() -> None:
    def rows() -> list[Any]:
        with sim(4) as cluster:
            return list(cluster.run(load(in_flight=4), duration_s=0.001).samples)

    assert rows() == rows()


def test_a_server_may_die_in_a_run() -> None:
    slow = {"dispatch_ns": 100_000, "lease_ms": 10}  # a history has a bound
    workload = load(servers=4, workers=0, reads=0.5, in_flight=2, history=True, **slow)
    with sim(6) as cluster:
        assert isinstance(cluster, SimulatedCluster)
        cluster.kill(1, after_s=0.5)
        result = cluster.run(workload, duration_s=1.5)
    verdict = check.check(result.history())
    assert verdict.ok, verdict.text
    assert verdict.operations > 1000
    assert {s.node for s in result.samples if s.metric == "appends"} == {0, 2, 3}
    assert result.latency("put").percentile(100) > 0.1e9, "the detection and the recovery"


@pytest.mark.parametrize(
    ("nodes", "settings", "named"),
    [
        (3, {}, ("servers", 4, 3)),
        (4, {"primaries": 3}, ("primaries", 2)),
        (4, {"replicas": 2}, ("replicas", 2, 1)),
        (4, {"log_bytes": 1 << 20}, ("log_bytes", 1 << 20)),
    ],
)
def test_wrong_settings_are_named(
    nodes: int, settings: dict[str, Any], named: tuple[object, ...]
) -> None:
    with sim(nodes) as cluster, raises(rd.InvalidArgument, *named):
        cluster.run(load(**settings), duration_s=0.001)


@pytest.mark.parametrize("world", [sim, threads, processes], ids=["sim", "shm", "processes"])
def test_a_full_log_ends_the_run(world: Callable[[int], rd.Cluster]) -> None:
    workload = load(keys=20_000, log_bytes=1 << 20, segment_bytes=64 << 10)
    with world(4) as cluster, raises(rd.Exhausted, "server", 1 << 20, "log_bytes", "objects"):
        cluster.run(workload, duration_s=0.1, timeout_s=30.0)


_SLOW: dict[str, Any] = {"dispatch_ns": 1_000_000, "workers": 0}
"""A ping waits for the operations under way, 1 ms each."""


def test_a_server_that_is_taken_for_dead_ends_the_run() -> None:
    with sim(4) as cluster, raises(rd.Error, "server", "taken for dead", "lease_ms"):
        cluster.run(load(lease_ms=10, in_flight=256, **_SLOW), duration_s=3.0)


def test_a_server_without_time_is_not_taken_for_dead() -> None:
    memory: dict[str, Any] = {"log_bytes": 16 << 20, "segment_bytes": 1 << 20}
    workload = rd.workload.TailwindStore(
        servers=2, replicas=1, keys=50, in_flight=1024, **memory, **_SLOW
    )
    with sim(4) as cluster:
        assert cluster.run(workload, duration_s=3.0).value("ops") > 100


def test_the_validations_measure_both_kinds_of_operations() -> None:
    assert any(part is validations for part in parts("validations"))
    found = {v.name: (v.workload, v.cores) for v in validations.validations()}
    assert {name: cores for name, (_, cores) in found.items()} == {
        "tailwind/reads": 3,
        "tailwind/writes": 4,
    }
