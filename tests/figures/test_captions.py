"""The line of a figure's points, and whether the paper's numbers belong beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyrdma import captions, figures, registry
from pyrdma.runs import Options, draw, execute
from pyrdma.store import Measurement
from tests.harness.support import pyrdma

FAKE = str(Path(__file__).parents[1] / "harness" / "fake_experiment.py")


def measurement(flags: list[str] | None = None, **changes: Any) -> Measurement:
    identity = {"fabric": "sim", "profile": "cx5", "overrides": {}, "quick": True, "seed": 1}
    identity |= {"params": {"n": 1}, "machine": ""} | changes
    return Measurement(identity, "", "", "", [], [], {}, {}, flags or [])


def test_line_of_a_simulated_figure() -> None:
    found = [measurement(seed=s, params={"n": n}) for s in (1, 2, 3) for n in (1, 2)]
    assert captions.line_of(found) == (
        "Fabric sim, profile cx5, quick; 2 points, n = 3 each, seeds 1 to 3."
    )


def test_line_of_a_figure_in_real_time() -> None:
    here: dict[str, Any] = {"fabric": "shm", "machine": "a CPU, 2 cores", "quick": False}
    found = [measurement(**here), measurement(["oversubscribed"], **here, params={"n": 8})]
    found.append(measurement(**here, seed=7))
    assert captions.line_of(found) == (
        "Fabric shm, on a CPU, 2 cores, full; 2 points, n = 1 to 2 each, seeds 1, 7; "
        "more busy threads than cores at 1 point."
    )


def test_line_names_overrides() -> None:
    line = captions.line_of([measurement(overrides={"link.rate_gbps": 10.0})])
    assert "profile cx5 with link.rate_gbps=10, quick" in line


@pytest.mark.parametrize(
    ("changes", "papers"),
    [
        ({}, True),
        ({"fabric": "shm"}, False),
        ({"fabric": "verbs"}, False),
        ({"profile": "cx4"}, False),
        ({"overrides": {"link.rate_gbps": 10.0}}, False),
    ],
)
def test_papers_numbers_belong_to_its_testbed(changes: dict[str, Any], papers: bool) -> None:
    assert captions.is_papers([measurement(), measurement(**changes)], ["cx5"]) is papers


@pytest.mark.parametrize(
    ("options", "papers"),
    [
        (Options(jobs=1), True),
        (Options(jobs=1, settings={"link.rate_gbps": 10}), False),
        (Options(fabric="shm"), False),
    ],
)
def test_figures_have_the_papers_numbers_on_its_testbed_alone(
    options: Options, papers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(FAKE, replace(options, out=tmp_path))
    saved: list[Any] = []

    def save(figure: Any, *rest: Any, **given: Any) -> list[Path]:
        saved.append((figure, given))
        return original(figure, *rest, **given)

    original = figures.save
    monkeypatch.setattr(figures, "save", save)
    draw(FAKE, tmp_path, caption=True)
    figure, given = saved[0]
    told = [t.get_text() for legend in figure.legends for t in legend.get_texts()]
    assert any(t.startswith("paper") for t in told) is papers
    assert given["title"] == registry.load(FAKE).title
    assert given["caption"]
    assert "quick; 4 points" in given["about"]


def test_draw_takes_a_caption() -> None:
    assert "--caption" in pyrdma("draw", "--help").stdout
