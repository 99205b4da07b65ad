"""`pyrdma validate`: both worlds run the same entries, what is measured stays, misses are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyrdma import figures, provenance, reach, validate, validation_figure
from pyrdma.commands import main
from pyrdma.data import check_name
from pyrdma.errors import Error, InvalidArgument, Unavailable
from pyrdma.experiment import Point
from pyrdma.validation import Validation
from pyrdma.workload import VerbsLoad
from tests.errors import raises

ENTRIES = [
    Validation("t/near", VerbsLoad(op="read", size=8, depth=2)),
    Validation("t/far", VerbsLoad(op="write", size=8, depth=2), "write_latency_p50", "ns"),
]
REAL = {"t/near": 100.0, "t/far": 100.0}
SIMULATED = {"t/near": 120.0, "t/far": 130.0}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Point]:
    """The points that were measured, in order; their numbers are those above."""
    points: list[Point] = []

    def measure(point: Point) -> dict[str, Any]:
        points.append(point)
        simulated = point.fabric == "sim"
        value = SIMULATED[point.experiment] if simulated else REAL[point.experiment]
        value += 0 if simulated else point.repetition - 3
        return {"rate": (value, "op/s"), "write_latency_p50": (value, "ns")}

    monkeypatch.setattr(validate, "measure", measure)
    monkeypatch.setattr(validate, "_time_of_others", lambda: 0.0)
    monkeypatch.setattr(reach, "digest", lambda _: "code")  # `measure` holds what it has seen
    return points


def compare(out: Path, **options: Any) -> list[validate.Comparison]:
    return validate.compare("cx5", ENTRIES, "shm", out, **options)


def test_errors_bounds_and_intervals(measured: list[Point], tmp_path: Path) -> None:
    near, far = compare(tmp_path)
    assert (near.measured, near.low, near.high, near.values) == (100, 97, 103, 7)
    assert near.error == pytest.approx(0.2)
    assert far.error == pytest.approx(0.3)
    assert (near.within, far.within) == (True, False)
    document = json.loads((tmp_path / "shm.json").read_text())
    assert [e["within"] for e in document["entries"]] == [True, False]
    assert len(measured) == 2 * (1 + 7)


def test_both_worlds_run_the_same_parameters(measured: list[Point], tmp_path: Path) -> None:
    compare(tmp_path, repetitions=2)
    of = {name: [p for p in measured if p.experiment == name] for name in REAL}
    for points in of.values():
        assert {p.fabric for p in points} == {"sim", "shm"}
        assert len({json.dumps(dict(p.params)) for p in points}) == 1


def test_repetitions_are_interleaved(measured: list[Point], tmp_path: Path) -> None:
    compare(tmp_path, repetitions=6)
    rounds = [p.repetition for p in measured if p.fabric == "shm"]
    assert rounds == sorted(rounds)
    orders = {tuple(p.experiment for p in measured if p.repetition == r) for r in range(1, 6)}
    assert len(orders) == 2


def test_an_interrupted_comparison_continues(measured: list[Point], tmp_path: Path) -> None:
    def interrupt(done: int, _total: int, _what: str) -> None:
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path, report=interrupt)
    assert len(measured) == 9
    compare(tmp_path)
    assert len(measured) == 16
    compare(tmp_path)
    assert len(measured) == 16
    compare(tmp_path, fresh=True)
    assert len(measured) == 32


def test_another_profile_costs_only_its_simulation(measured: list[Point], tmp_path: Path) -> None:
    compare(tmp_path)
    measured.clear()
    validate.compare("cx3", ENTRIES, "shm", tmp_path)
    assert [p.fabric for p in measured] == ["sim", "sim"]


def test_a_disturbed_measurement_is_repeated_and_does_not_count(
    measured: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_of_others() -> float:
        """Return the time of a program that runs while the first real point is measured."""
        return 1000.0 * min(len(measured), 2 + validate.ATTEMPTS)

    monkeypatch.setattr(validate, "_time_of_others", time_of_others)
    near, far = compare(tmp_path, repetitions=3)
    assert len(measured) == 2 + 6 + (validate.ATTEMPTS - 1)
    assert sorted([near.values, far.values]) == [2, 3]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("world", ["sim", "shm"])
def test_a_failed_entry_is_listed_and_the_others_go_on(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = validate.measure

    def fail(point: Point) -> Any:
        if point.experiment == "t/near" and point.fabric == world:
            raise Error("no such queue")
        return works(point)

    monkeypatch.setattr(validate, "measure", fail)
    near, far = compare(tmp_path)
    assert near.problem == f"{world}: no such queue"
    assert not near.within
    assert far.error is not None


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["pyrdma", "validate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    return call


@pytest.mark.usefixtures("measured")
def test_the_command_lists_misses(
    tmp_path: Path,
    command: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(validate, "validations", lambda: ENTRIES)
    status, text = command("cx5", "--out", tmp_path)
    assert status == 1
    assert "missed: t/far: +30%, bound 25%" in text
    assert "missed: t/near" not in text
    assert (tmp_path / "validate-shm.png").stat().st_size > 10_000
    status, text = command("cx5", "--out", tmp_path, "--only", "t/near", "--json")
    assert status == 0
    assert [e["name"] for e in json.loads(text[: text.rindex("]") + 1])] == ["t/near"]


def test_errors_name_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises(InvalidArgument, "sim", "shm", "verbs"):
        validate.compare("cx5", ENTRIES, "sim", tmp_path)
    with raises(InvalidArgument, "cx55", "cx5"):
        validate.compare("cx55", ENTRIES, "shm", tmp_path)
    with raises(InvalidArgument, "fabirc/read", "fabric/read_256_depth_1"):
        validate.choose(["fabirc/read"])
    with raises(InvalidArgument, "eth0", "shm"):
        validate.compare("cx5", ENTRIES, "shm", tmp_path, device="eth0")
    small = tmp_path / "small.toml"
    small.write_text('name = "small"\nextends = "cx5"\nnodes = 1\n')
    with raises(InvalidArgument, "t/near", 2, small):
        validate.compare(str(small), ENTRIES, "shm", tmp_path)
    monkeypatch.setattr(provenance, "usable_cores", lambda: 1)
    with raises(Unavailable, "t/near", 2, 1, "--only"):
        compare(tmp_path)


def test_the_figure_shows_both_worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, *_, **__: drawn.append(figure))
    found = [
        validate.Comparison("t/a", "rate", "op/s", 0.25, 1e6, 0.9e6, 1.1e6, 7, 1.2e6),
        validate.Comparison("t/b", "rate", "op/s", 0.25, 1e6, 0.9e6, 1.1e6, 7, 2e6),
        validate.Comparison("t/c", "read_latency_p50", "ns", 0.25, 100, 90, 110, 7, 110),
        validate.Comparison("t/d", "rate", "op/s", 0.25, problem="no device"),
    ]
    validation_figure.draw(found, "shm", tmp_path)
    (figure,) = drawn
    rates, latency = figure.axes[:2]
    assert [t.get_text() for t in rates.get_yticklabels()] == ["t/a", "t/b"]
    assert "op/s" in rates.get_xlabel()
    assert "ns" in latency.get_xlabel()
    labels = rates.get_legend_handles_labels()[1]
    assert any("measured on shm" in label for label in labels)
    assert "simulated" in labels


def test_entries_for_more_cores_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [*ENTRIES, Validation("t/three", ENTRIES[0].workload, nodes=3)]
    monkeypatch.setattr(validate, "validations", lambda: entries)
    for cores, names in ((1, ["t/three"]), (2, ["t/three"]), (3, [])):
        monkeypatch.setattr(provenance, "usable_cores", lambda cores=cores: cores)
        assert [v.name for v in validate.left_out()] == names
        assert {v.name for v in validate.choose()} == {v.name for v in entries} - {*names}
    monkeypatch.setattr(provenance, "usable_cores", lambda: 2)
    assert validate.choose(["t/three"]) == entries[2:]
    with raises(Unavailable, "t/three", 3, 2, "--only"):
        validate.check_machine("shm", "", entries)


def test_all_entries_but_the_stores_fit_two_cores() -> None:
    found = {entry.name for entry in validate.validations() if entry.cores > 2}
    assert found == {"tailwind/reads", "tailwind/writes"}


def test_every_entry_runs_in_the_simulator() -> None:
    for entry in validate.validations():
        point = Point(entry.name, entry.params(), "sim", "cx5", quick=False)
        metrics = {row.metric: row.unit for row in validate.measure(point).summary()}
        assert metrics[entry.metric] == entry.unit


def test_the_parameters_of_every_entry_can_be_stored() -> None:
    for entry in validate.validations():
        for name in entry.params().keys() - {"profile"}:
            check_name(name, f"a parameter of {entry.name}")
