"""Histories of the ordered store that node 0 serves, in the worlds of one machine."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import pyrdma as rd
from pyrdma import errors
from pyrdma.check import check
from pyrdma.result import Result
from tests.errors import raises

MIX = {"scans": 0.1, "puts": 0.4, "keys": 8, "threads": 2, "server_threads": 2, "in_flight": 2}
WORLDS = {
    "sim": lambda: rd.Cluster.sim(nodes=3, profile="cx3", seed=5),
    "processes": lambda: rd.Cluster.local(nodes=2, mode="process"),
}


@pytest.fixture(autouse=True)
def needs_lmdb() -> None:
    """Skip where node 0 finds no LMDB."""
    with rd.Cluster.sim(nodes=2, profile="cx3", seed=1) as cluster:
        try:
            cluster.run(rd.workload.ErpcStore(keys=1, iterations=1))
        except errors.Unavailable as problem:
            if "liblmdb" not in str(problem):
                raise
            pytest.skip(str(problem))


def recorded(cluster: rd.Cluster, **changes: object) -> Result:
    values = {"iterations": 200, "history": True, "failure_timeout_ns": 30_000_000_000}
    return cluster.run(rd.workload.ErpcStore(**{**MIX, **values, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("world", list(WORLDS.values()), ids=list(WORLDS))
def test_gets_puts_and_scans_over_rpcs_are_linearizable(
    world: Callable[[], rd.Cluster], workers: int
) -> None:
    with world() as cluster:
        result = recorded(cluster, workers=workers)
        clients = cluster.nodes - 1
    assert len(result.histories) == clients
    verdict = check(result.history())
    assert verdict.ok, verdict.text
    assert (verdict.model, verdict.objects) == ("map", 1)
    assert b'"scan"' in result.history()
    assert all(result.latency(kind).count > 0 for kind in ("get", "scan", "put"))


@pytest.mark.parametrize("kind", ["get", "scan"])
def test_a_wrong_value_is_found(kind: str) -> None:
    with rd.Cluster.sim(nodes=2, profile="cx3", seed=1) as cluster:
        lines = recorded(cluster).history().splitlines()
    ends = [n for n, line in enumerate(lines) if f'"ok","f":"{kind}"'.encode() in line]
    event = json.loads(lines[ends[-1]])
    event["value"] = -1  # that no key ever had
    lines[ends[-1]] = json.dumps(event).encode()
    assert check(b"\n".join(lines)).answer == "no"


def test_histories_of_many_keys_have_no_scans() -> None:
    with rd.Cluster.sim(nodes=2, profile="cx3", seed=1) as cluster:
        result = recorded(cluster, keys=65)
    verdict = check(result.history())
    assert verdict.ok, verdict.text
    assert verdict.model == "kv"
    assert b'"scan"' not in result.history()


def test_one_node_serves_nobody() -> None:
    with rd.Cluster.sim(nodes=1, profile="cx3") as cluster, raises(errors.InvalidArgument, "2"):
        cluster.run(rd.workload.ErpcStore())


def test_shares_above_one_are_refused() -> None:
    with rd.Cluster.sim(nodes=2, profile="cx3") as cluster, raises(errors.InvalidArgument, "puts"):
        cluster.run(rd.workload.ErpcStore(scans=0.6, puts=0.6))
