"""The screen at the end of the quickstart: predictions, figures, verdicts, misses, commands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from pyrdma import claims, registry
from pyrdma.claims import Verdict
from pyrdma.commands import summary
from tests.errors import unnamed
from tests.harness.support import pyrdma


def verdict_of(name: str, verdict: str, role: str = "validation", reason: str = "") -> Verdict:
    paper = name.partition("/")[0]
    return Verdict(name, paper, f"{paper}/fig1", "number", role, verdict, 1, 1, "us", reason)


def test_a_full_folder_fits_on_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in registry.ids():
        for fabric in ("sim", "shm"):
            folder = tmp_path / name / fabric
            folder.mkdir(parents=True)
            (folder / f"{Path(name).name}.png").touch()
    verdicts = [
        verdict_of(name, "missed", role, reason="no experiment" if name.endswith("1") else "")
        for name in claims.load()
        for role in ("calibration", "validation")
    ]
    verdicts = [
        replace(v, kind=kind, miss_has_reason=True)
        for v, kind in zip(
            verdicts, cycle(["absolute", "crossover", "rank", "ratio", "trend"]), strict=False
        )
    ]
    monkeypatch.setattr(claims, "evaluate", lambda *_, **__: verdicts)
    lines = list(summary.lines(tmp_path))
    assert len(lines) <= 40
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 100
    assert str(tmp_path) in "\n".join(lines)
    figures = Counter(name.partition("/")[0] for name in registry.ids())
    for fabric in ("sim", "shm"):
        [row] = [line for line in lines if line.split()[:1] == [fabric]]
        assert all(f"{paper} {count}" in row for paper, count in figures.items())


def test_few_missed_claims_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"loco/claim_{n}" for n in range(13)]
    wrong = verdict_of("loco/profile", "missed", role="calibration")
    for count in (12, 13):
        missed = [wrong, *(verdict_of(name, "missed") for name in names[:count])]
        monkeypatch.setattr(claims, "evaluate", lambda *_, found=missed, **__: found)
        text = "\n".join(summary.lines(tmp_path))
        assert ("loco/claim_1" in text) == (count == 12)
        assert "loco/profile" in text, "whose profile must be corrected"


def test_claims_are_counted_by_paper_role_and_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = [
        verdict_of("loco/one", "held"),
        verdict_of("loco/two", "held"),
        verdict_of("loco/three", "missed"),
        verdict_of("loco/four", "stale"),
        verdict_of("erpc/wrong_profile", "missed", role="calibration"),
        verdict_of("erpc/later", "not evaluated", reason="no experiment decides it yet"),
    ]
    monkeypatch.setattr(claims, "evaluate", lambda *_, **__: verdicts)
    rows = [line.split() for line in summary.lines(tmp_path)]
    assert ["loco", "validation", "1", "0", "2", "0", "1", "0"] in rows
    assert ["erpc", "calibration", "1", "0", "0", "0", "0", "0"] in rows
    assert any(row[-1:] == ["erpc/wrong_profile"] for row in rows)
    assert ["missed:", "loco/three"] in rows
    assert any({"erpc", "1"} <= {*row} and "calibration" not in row for row in rows), "one waits"


def test_predictions_come_first_by_kind_and_each_datum_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, missed = (verdict_of("loco/one", name) for name in ("held", "missed"))
    verdicts = [
        replace(held, kind="absolute", error=0.1, robust=True),
        replace(held, kind="absolute", error=0.1, same_as="loco/one"),
        replace(missed, kind="absolute", error=0.5),
        replace(missed, kind="absolute", error=0.4),
        replace(held, kind="rank", verdict="held, not robust", robust=False),
        replace(held, kind="rank", verdict="by construction"),
        replace(held, kind="rank", verdict="stale"),
        replace(held, role="calibration", kind="absolute", error=9.0),
    ]
    monkeypatch.setattr(claims, "evaluate", lambda *_, **__: verdicts)
    lines = list(summary.lines(tmp_path))
    head = ["held", "robust", "not robust", "missed", "stale", "by construction", "not evaluated"]
    assert lines[0].split() == ["Predictions", *" ".join(head).split()]
    rows = [line.split() for line in lines]
    assert rows[1] == ["absolute", "1", "1", "0", "2", "0", "0", "0"]
    assert rows[2] == ["rank", "0", "0", "1", "0", "1", "1", "0"]
    assert rows[3] == ["all", "1", "1", "1", "2", "1", "1", "0"]
    assert lines[4].strip() == "median error of 3 absolute predictions: 40.0%"
    assert lines[5].strip().startswith("1 more state")


def test_what_is_to_be_typed_next_works() -> None:
    for command, _ in summary._NEXT:
        program, *words = command.split()
        assert program == "pyrdma"
        done = pyrdma(words[0], "--help")
        assert done.returncode == 0, done.stderr
        for option in (word for word in words if word.startswith("--")):
            assert option in done.stdout
        for name in (word for word in words if "/" in word):
            assert name in registry.ids()


def test_the_command_shows_an_empty_folder(tmp_path: Path) -> None:
    done = pyrdma("summary", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    [figures] = [line for line in done.stdout.splitlines() if line.startswith("Figures")]
    assert unnamed(figures, 0) == []
