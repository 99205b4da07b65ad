"""Stored results as tables: one frame over a folder, and the difference of two."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import pyrdma as rd
from pyrdma._workload import table_of
from pyrdma.data import COLUMNS
from pyrdma.experiment import Point
from pyrdma.result import Sample
from pyrdma.store import Store, Task, point_file
from tests.errors import raises, unnamed
from tests.harness.support import FAKE, pyrdma
from tests.harness.test_result import payload


def store(
    out: Path,
    name: str,
    rates: dict[int, float],
    fabric: str = "sim",
    **params: rd.experiment.Value,
) -> None:
    """Store a rate for each seed, with the rows of two nodes and a histogram."""
    place = Store(out, name, fabric)
    for seed, rate in rates.items():
        result = rd.Result(
            samples=[Sample(n, t, "rate", rate / 2, "op/s") for n, t in ((0, 0), (1, -1))],
            histograms={"read": [payload([100] * 99), payload([100_000])]},
        )
        task = Task(Point(name, params, fabric, seed=seed, profile="cx5"), "code")
        place.put(task, point_file(task, result))
    place.close()


def test_a_folder_is_one_tidy_table(tmp_path: Path) -> None:
    store(tmp_path, "a/one", {1: 10.0, 2: 12.0}, size=8)
    store(tmp_path, "b/two", {1: 20.0}, size="large", depth=4)
    frame = rd.load(tmp_path)
    rates = frame[frame["metric"] == "rate"]
    assert rates["scope"].value_counts().to_dict() == {"total": 3, "node": 3, "thread": 3}
    totals = rates[rates["scope"] == "total"]
    assert totals["value"].tolist() == [10, 12, 20]
    assert totals["experiment"].tolist() == ["a/one", "a/one", "b/two"]
    assert (totals["node"] == -1).all()
    assert totals["size"].tolist() == [8, 8, "large"], "one experiment's text is no other's"
    assert totals["depth"].isna().tolist() == [True, True, False]
    assert len(rd.load(tmp_path / "b")) == len(rd.load(tmp_path / "b/two/sim")) > 0
    with raises(rd.InvalidArgument, tmp_path / "a/one/sim/points"):
        rd.load(tmp_path / "a/one/sim/points")


README = Path(__file__).parents[2] / "README.md"
TYPES = {"text": "str object", "whole number": "int64", "number": "float64"}


def test_the_readme_lists_the_columns(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8").partition("### The table of results")[2]
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|([^|]*)\|([^|]+)\|$", text, re.MULTILINE)
    frame = rd.run(FAKE, out=tmp_path, fabric="shm", set={"n": 1}, repetitions=1)
    assert [name for name, *_ in rows] == list(COLUMNS)
    assert list(frame.columns) == ["experiment", "behaviour", "n", "series", *COLUMNS[1:]]
    for name, kind, _, meaning in rows:
        assert str(frame[name].dtype) in TYPES.get(kind, "bool").split(), name
        assert meaning.strip()


def test_the_parameters_in_effect_are_stored(tmp_path: Path) -> None:
    frame = rd.run("fabric/latency", set={"transport": "rc", "op": "read", "size": 8}, out=tmp_path)
    assert frame["workloads"].nunique() == 1
    [used] = json.loads(frame["workloads"].iloc[0])
    assert (used["workload"], used["nodes"]) == ("verbs_load", 2)
    assert used["parameters"].keys() == {p["name"] for p in table_of("verbs_load")}
    assert (used["parameters"]["op"], used["parameters"]["mode"]) == ("read", "latency"), "given"
    assert (used["parameters"]["qps"], used["parameters"]["inline"]) == (1, -1), "defaults"
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        result = cluster.run(rd.workload.VerbsLoad(size=8), duration_s=1e-5)
    assert result.params.keys() == used["parameters"].keys()
    assert (result.params["size"], result.params["device_memory"]) == (8, False)


def test_histograms_are_readable(tmp_path: Path) -> None:
    store(tmp_path, "a/one", {1: 10.0}, size=8)
    [row] = rd.load(tmp_path, histograms=True).to_dict("records")
    assert (row["operation"], row["size"], row["seed"]) == ("read", 8, 1)
    assert row["latency"].count == 100
    assert row["latency"].percentile(99) == 100


def test_real_time_is_compared_with_intervals(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    store(a, "x/rates", {seed: 100.0 + seed for seed in range(1, 8)}, "shm", size=8)
    store(b, "x/rates", {seed: 200.0 + 2 * seed for seed in range(1, 8)}, "shm", size=8)
    store(a, "x/few", {1: 5.0, 2: 6.0}, "shm")
    store(b, "x/few", {1: 6.0, 2: 5.0}, "shm")
    store(a, "x/left", {1: 5.0}, "shm")
    frame = rd.compare(a, b)
    found = frame[frame["metric"] == "rate"].set_index("experiment")
    rates, few = found.loc["x/rates"], found.loc["x/few"]
    assert (rates["a"], rates["b"], rates["ratio"]) == (104, 208, 2)
    # Of seven values, the least and the largest bound the median at 98 %.
    assert (rates["low"], rates["high"]) == (202 / 107, 214 / 101)
    assert rates["differs"]
    assert math.isnan(few["low"])
    assert not few["differs"]
    assert frame.iloc[0]["experiment"] == "x/rates"
    assert frame.attrs["only_a"] == len(rd.load(a / "x/left").query("scope == 'total'"))
    with raises(rd.InvalidArgument, a / "x/left", b / "x/few"):
        rd.compare(a / "x/left", b / "x/few")
    shown = pyrdma("compare", str(a), str(b))
    assert unnamed(shown.stdout, "x/rates", 104, 208, "size=8") == []
    assert "x/few" not in shown.stdout
    listed = json.loads(pyrdma("compare", str(a), str(b), "--json").stdout)
    assert len(listed) == len(frame)
    assert {entry["low"] for entry in listed if entry["experiment"] == "x/few"} == {None}


def test_virtual_time_is_compared_bit_by_bit(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    rates = {seed: 100.0 + seed for seed in range(1, 9)}
    store(a, "x/rates", rates)
    store(b, "x/rates", {**rates, 3: math.nextafter(103.0, 200)})
    store(a, "x/other", {1: 5.0, 2: 6.0})
    store(b, "x/other", {1: 6.0, 3: 5.0})
    frame = rd.compare(a, b)
    rows = frame[frame["metric"] == "rate"]
    assert frame[["low", "high"]].isna().all().all(), "exact numbers have no interval"
    assert (frame["values_a"] == 1).all()
    differ = rows[rows["differs"]].set_index(["experiment", "seed"])
    assert list(differ.index) == [("x/other", 1), ("x/rates", 3)], "largest change first"
    assert differ.loc[("x/rates", 3), "b"] == math.nextafter(103.0, 200), "one bit of one seed"
    assert len(rows) == 8 + 1, "a seed that one folder lacks is not compared"
    of_nodes = frame[frame["metric"] == "node_numbers"].set_index(["experiment", "seed"])
    assert of_nodes.loc[("x/rates", 3), "differs"]
    assert not of_nodes.loc[("x/rates", 4), "differs"]
    shown = pyrdma("compare", str(a), str(b))
    assert unnamed(shown.stdout, "103.00000000000001", "seed=3") == []
    listed = json.loads(pyrdma("compare", str(a), str(b), "--json").stdout)
    assert math.nextafter(103.0, 200) in [entry["b"] for entry in listed]


def test_other_latencies_with_equal_percentiles_differ(tmp_path: Path) -> None:
    """A histogram is compared whole, since the rows have a few of its percentiles alone."""
    folders = []
    for name, counts in (("a", [100] * 98 + [101]), ("b", [100] * 99)):
        folders.append(tmp_path / name)
        place = Store(folders[-1], "x/one", "sim")
        task = Task(Point("x/one", {}, profile="cx5"), "code")
        place.put(task, point_file(task, rd.Result(histograms={"read": [payload(counts)]})))
        place.close()
    frame = rd.compare(*folders)
    assert "read_latencies" in set(frame[frame["differs"]]["metric"])
    assert "read_latency_p50" not in set(frame[frame["differs"]]["metric"])


def test_the_interval_covers_the_true_ratio() -> None:
    """At least 95 of 100 intervals cover it, whatever the distribution."""
    import random

    from pyrdma.comparison import difference

    draw = random.Random(1)
    covered = 0
    for _ in range(2000):
        a = [draw.expovariate(math.log(2)) for _ in range(9)]  # the median is 1
        b = [3 * draw.expovariate(math.log(2)) for _ in range(9)]
        found = difference(a, b)
        covered += found["low"] <= 3 <= found["high"]
    assert covered / 2000 >= 0.95


def test_folders_with_further_experiments_are_compared(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for out in (a, b):
        store(out, "x/rates", {1: 5.0}, size=8)
    store(b, "x/other", {1: 5.0}, size="text")
    assert not rd.compare(a, b)["differs"].any()


@pytest.mark.parametrize("name", ["load", "compare", "run"])
def test_public_names(name: str) -> None:
    assert callable(getattr(rd, name))
    assert name in rd.__all__
