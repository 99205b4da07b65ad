"""Loads of services, in virtual time and over shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

import pyrdma as rd
from pyrdma import workload
from pyrdma.systems import parts
from pyrdma.systems.krcore import validations
from tests.errors import raises


def sim(nodes: int) -> rd.Cluster:
    return rd.Cluster.sim(nodes=nodes, profile="krcore", seed=1)


def threads(nodes: int) -> rd.Cluster:
    return rd.Cluster.local(nodes=nodes, fabric="shm", mode="thread")


WORLDS = pytest.mark.parametrize("world", [sim, threads], ids=["sim", "shm"])
SMALL: dict[str, Any] = {"arena_bytes": 8 << 20}
ONE_SIDED: dict[str, Any] = {**SMALL, "region_bytes": 1 << 20}


def total(result: rd.Result, metric: str) -> float:
    return sum(s.value for s in result.samples if s.metric == metric)


@WORLDS
@pytest.mark.parametrize("op", ["read", "write"])
def test_one_sided_requests_are_counted(
    world: Callable[[int], rd.Cluster], op: Literal["read", "write"]
) -> None:
    load = workload.KrcoreOneSided(op=op, clients=2, batch=4, iterations=48, **ONE_SIDED)
    with world(3) as cluster:
        result = cluster.run(load, duration_s=10.0)
    assert result.value("ops") == 2 * 48
    assert result.latency(op).count == 2 * 48
    assert {s.node for s in result.samples if s.metric == "ops"} == {1, 2}
    assert total(result, "region_misses") == 2, "each node's core asks once"


@WORLDS
@pytest.mark.parametrize("system", ["krcore", "verbs"])
def test_echoes_come_back(
    world: Callable[[int], rd.Cluster], system: Literal["krcore", "verbs"]
) -> None:
    load = workload.KrcoreEcho(
        system=system, clients=2, batch=2, server_threads=1, iterations=50, **SMALL
    )
    with world(2) as cluster:
        result = cluster.run(load, duration_s=10.0)
    assert result.value("ops") == 2 * 50
    assert result.latency("echo").count == 2 * 50
    assert total(result, "refused_messages") == 0


def test_clients_measure_together() -> None:
    # Reliable connections are made one after the other, for 1.4 ms each. Clients that began as soon
    # as they had theirs found an idle server, and the sum of their rates was above its limit.
    rates = {}
    for transport in ("rc", "dc"):
        load = workload.KrcoreEcho(
            transport=transport, clients=12, batch=2, server_threads=1, **SMALL
        )
        with sim(7) as cluster:
            rates[transport] = cluster.run(load, duration_s=0.0003).value("rate")
    assert rates["rc"] == pytest.approx(rates["dc"], rel=0.25)


@pytest.mark.parametrize(("cached", "reads"), [(False, 2), (True, 0)])
def test_a_connect_without_cached_metadata_takes_two_reads(cached: bool, reads: int) -> None:
    load = workload.KrcoreConnect(clients=4, cached=cached, iterations=20, **SMALL)
    with sim(3) as cluster:
        result = cluster.run(load, duration_s=1.0)
    connects = total(result, "connects")
    assert connects >= 4 * 20
    # With a cache, each node asks once.
    assert total(result, "meta_reads") == (2 * connects if reads else 2 * 2)
    assert 0 < result.latency("connect").mean < 10_000
    assert total(result, "cache_hits") == (connects - 2 if cached else 0)


def test_a_mesh_shares_what_a_node_learns() -> None:
    with sim(4) as cluster:
        result = cluster.run(workload.KrcoreMesh(workers=12, **SMALL))
    assert result.latency("worker").count == 12
    assert total(result, "connects") == 12 * 11
    assert total(result, "meta_reads") <= 2 * 4 * 4, "two for each pair of nodes, at most"
    finished = [s.value for s in result.samples if s.metric == "finished"]
    assert len(finished) == 12
    assert max(finished) < 100_000


def test_more_dynamic_queue_pairs_make_a_batch_faster() -> None:
    found = []
    for pairs in (1, 4):
        load = workload.KrcoreBatch(dc_queue_pairs=pairs, requests=16, **SMALL)
        with sim(5) as cluster:
            result = cluster.run(load, duration_s=0.0005)
        assert result.value("polled_queues") == 1, "a pool has one completion queue"
        found.append(result.latency("batch").mean)
    assert found[1] < found[0]


def test_a_miss_takes_longer_than_a_checked_region() -> None:
    found = []
    for miss in (False, True):
        load = workload.KrcoreOneSided(miss=miss, iterations=48, **ONE_SIDED)
        with sim(2) as cluster:
            found.append(cluster.run(load, duration_s=1.0).latency("read").mean)
    assert found[1] > 2 * found[0]


@pytest.mark.parametrize("transport", ["rc", "dc"])
def test_one_seed_is_one_run(transport: Literal["rc", "dc"]) -> None:
    def rows() -> list[Any]:
        load = workload.KrcoreOneSided(clients=4, servers=2, transport=transport, **ONE_SIDED)
        with sim(4) as cluster:
            return list(cluster.run(load, duration_s=0.0001).samples)

    assert rows() == rows()


@pytest.mark.parametrize(
    "load",
    [
        workload.KrcoreConnect(),
        workload.KrcoreEcho(),
        workload.KrcoreOneSided(servers=1),
    ],
    ids=lambda load: load.name,
)
def test_a_server_alone_is_too_few_nodes(load: Any) -> None:
    with sim(1) as cluster, raises(rd.InvalidArgument, "nodes", 1):
        cluster.run(load, duration_s=0.001)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"dc_queue_pairs": 0}, ("dc_queue_pairs", 0, 1)),
        ({"meta_servers": 65}, ("meta_servers", 65, 64)),
        ({"transport": "uc"}, ("transport", "uc", "dc", "rc")),
        ({"op": "send"}, ("op", "send", "read", "write")),
        ({"batch": 0}, ("batch", 0, 1)),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], named: tuple[object, ...]) -> None:
    with raises(rd.InvalidArgument, *named):
        workload.KrcoreOneSided(**settings)


def test_a_region_above_the_arena_says_what_to_raise() -> None:
    load = workload.KrcoreOneSided(region_bytes=1 << 20, arena_bytes=1 << 16)
    with sim(2) as cluster, raises(rd.Exhausted, 1 << 20, 1 << 16, "arena_bytes"):
        cluster.run(load, duration_s=0.001)


def test_the_validations_are_of_this_system() -> None:
    assert any(part is validations for part in parts("validations"))
    assert all(v.name.startswith("krcore/") for v in validations.validations())
