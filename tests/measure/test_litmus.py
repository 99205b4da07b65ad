"""The litmus suite from Python: worlds, processes, a user's own tests, and the experiment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyrdma as rd
from pyrdma import workload
from pyrdma._core import measure
from pyrdma.runs import Options, execute
from tests.errors import raises

SHAPES = 81


def outcomes(result: Any, level: str) -> dict[str, float]:
    """Return how often each outcome of a level was seen, by shape and values."""
    found = {}
    for sample in result.samples:
        if sample.metric.startswith("outcome|"):
            _, shape, of, values = sample.metric.split("|")
            if of == level:
                found[f"{shape}|{values}"] = sample.value
    return found


def test_workload_has_the_native_parameters() -> None:
    known = {entry["name"] for entry in measure.workload_parameters("litmus")}
    assert {field.name for field in dataclasses.fields(workload.Litmus)} == known


@pytest.mark.parametrize("profile", ["cx3", "cx5", "d6515"])
def test_weak_memory_of_each_profile_keeps_the_model(profile: str) -> None:
    with rd.Cluster.sim(nodes=4, profile=profile, memory="weak") as cluster:
        result = cluster.run(workload.Litmus(rounds=6000))
    assert result.value("forbidden") == 0
    assert outcomes(result, "forbidden") == {}
    late = outcomes(result, "late")
    assert sum(count > 0 for count in late.values()) > 0.8 * len(late)


def test_strong_memory_shows_only_strong_outcomes() -> None:
    with rd.Cluster.sim(nodes=4, profile="cx5", memory="strong") as cluster:
        result = cluster.run(workload.Litmus(rounds=6000))
    assert result.value("forbidden") == 0
    assert not any(outcomes(result, "late").values())
    assert not any(outcomes(result, "repeated").values())
    assert outcomes(result, "asynchronous")["put-store|x=2"] > 0


def test_node_processes_show_nothing_forbidden_in_a_million_rounds() -> None:
    with rd.Cluster.local(nodes=4, mode="process") as cluster:
        result = cluster.run(workload.Litmus(rounds=12_500, batch=1024), timeout_s=240)
    assert result.value("rounds") >= 1_000_000
    assert outcomes(result, "forbidden") == {}
    assert result.value("forbidden") == 0


def test_a_test_of_ones_own() -> None:
    mine = workload.Litmus(
        locations="x@1 f@1",
        threads="0: put#p x 1; poll; put#q f 1 | 1: wait f 1; load r0 x",
        observed="r0",
        rounds=3000,
    )
    with rd.Cluster.sim(nodes=2, profile="cx5", memory="weak") as cluster:
        result = cluster.run(mine)
    assert outcomes(result, "late")["custom|r0=0"] > 0
    assert outcomes(result, "sequential")["custom|r0=1"] > 0


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"shape": "MPP"}, ["shape", "MPP"]),
        ({"locations": "x@1", "threads": "0: pet x 1", "observed": "x"}, ["pet"]),
        ({"locations": "x@0", "threads": "0: wait x 1", "observed": "x"}, [0]),
    ],
)
def test_wrong_tests_are_refused(given: dict[str, Any], values: list[object]) -> None:
    with (
        rd.Cluster.sim(nodes=2, profile="cx5") as cluster,
        raises(rd.InvalidArgument, *values),
    ):
        cluster.run(workload.Litmus(**given))


def test_experiment_runs_and_draws(tmp_path: Path) -> None:
    report = execute("fabric/litmus", Options(out=tmp_path, settings={"rounds": 300}, jobs=1))
    assert report.figures
    assert not report.figure_failed
    frame = pd.read_parquet(report.folder / "results.parquet")
    seen = frame[frame["metric"] == "seen"]
    assert seen["shape"].nunique() == SHAPES
    assert set(seen["memory"]) == {"weak", "strong"}
    assert set(seen["kind"]) <= {"strong", "weak", "forbidden"}
    assert not seen[seen["kind"] == "forbidden"]["value"].any()
    assert (seen.groupby(["memory", "shape"])["value"].sum() >= 300).all()
