"""Histories of the store, recorded by its workload in the worlds of one machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import errors
from pyrdma.check import check
from pyrdma.result import Result
from tests.errors import raises

MIX = {"reads": 0.4, "inserts": 0.2, "removes": 0.2, "keys": 8, "threads": 2, "value_bytes": 64}


def recorded(cluster: rd.Cluster, **changes: object) -> Result:
    values = {**MIX, "iterations": 200, "history": True, **changes}
    return cluster.run(rd.workload.LocoYcsb(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "world",
    [
        lambda: rd.Cluster.sim(nodes=3, profile="cx5", seed=5),
        lambda: rd.Cluster.local(nodes=2, mode="process"),
    ],
    ids=["sim", "processes"],
)
def test_operations_on_the_store_are_linearizable(world: Callable[[], rd.Cluster]) -> None:
    with world() as cluster:
        result = recorded(cluster)
        nodes = cluster.nodes
    assert len(result.histories) == nodes
    verdict = check(result.history())
    assert verdict.model == "kv"
    assert verdict.ok, verdict.text
    # What had no effect is recorded as failed, and is not judged.
    failed = result.history().count(b'"type":"fail"')
    assert verdict.operations + failed >= nodes * 2 * 200
    assert verdict.objects == 6  # 80 % of the keys


def test_every_kind_of_operation_is_recorded() -> None:
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        lines = [json.loads(line) for line in recorded(cluster).history().splitlines()]
    events = lines[1:]
    assert {e["f"] for e in events} == {"get", "put", "insert", "delete"}
    written = [e["value"] for e in events if e["f"] in ("put", "insert") and e["type"] == "invoke"]
    assert len(written) == len(set(written))


def test_a_wrong_value_is_found() -> None:
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        lines = recorded(cluster, reads=0.5, inserts=0.0, removes=0.0).history().splitlines()
    reads = [n for n, line in enumerate(lines) if b'"ok","f":"get"' in line]
    event = json.loads(lines[reads[-1]])
    event["value"] = 0 if event["key"] else 1  # a value that this key never had
    lines[reads[-1]] = json.dumps(event).encode()
    verdict = check(b"\n".join(lines))
    assert verdict.answer == "no"
    assert verdict.key == event["key"]


def test_both_stores_record(tmp_path: Path) -> None:
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        workload = rd.workload.LocoYcsb(
            system="sherman", reads=0.5, keys=8, iterations=50, history=True
        )
        result = cluster.run(workload)
    assert check(result.history()).ok
    result.save(tmp_path)
    assert Result.load(tmp_path).history() == result.history()
    assert check(tmp_path / "history.jsonl").ok


def test_keys_that_were_not_loaded_are_absent_at_first() -> None:
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        verdict = check(recorded(cluster, fill=0.1).history())
    assert verdict.ok, verdict.text


def test_a_history_that_is_too_long_ends_the_run() -> None:
    sim: Any = {"nodes": 2, "profile": "cx5", "seed": 1}
    with rd.Cluster.sim(**sim) as cluster, raises(errors.InvalidArgument, "800000", "262144"):
        recorded(cluster, keys=1_000_000)
    with rd.Cluster.sim(**sim) as cluster, raises(errors.Exhausted, "91072", "262144"):
        recorded(cluster, keys=100_000, iterations=100_000, window=64)


def test_a_run_without_a_history_says_how_to_get_one() -> None:
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        result = recorded(cluster, history=False)
    with raises(errors.InvalidArgument, "history=1"):
        result.history()
