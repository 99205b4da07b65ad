"""Notebooks show progress, and each can be extended by a sweep of the reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import IPython.display
import pytest

import pyrdma as rd
from pyrdma import notebook

FAKE = str(Path(__file__).with_name("fake_experiment.py"))
NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.py"))
OF_EXPERIMENTS = [path for path in NOTEBOOKS if "rd.fetch(" in path.read_text(encoding="utf-8")]


class Shown:
    """Stands for the line of a cell's output."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, shown: Any) -> None:
        self.lines.append(shown.data)


def test_a_run_reports_each_point_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Shown] = []

    def display(shown: Any, display_id: bool) -> Shown:
        assert display_id
        made.append(Shown())
        made[-1].update(shown)
        return made[-1]

    monkeypatch.setattr(IPython.display, "display", display)
    table = rd.run(FAKE, out=tmp_path, jobs=1, progress=notebook.progress("fake"))
    assert len(table)
    (line,) = made
    assert len(line.lines) == 4
    assert line.lines[-1].startswith("fake: 4 of 4 points")


@pytest.mark.parametrize("path", OF_EXPERIMENTS, ids=lambda p: p.stem)
def test_a_notebook_has_parameters_and_a_run(path: Path) -> None:
    cells = path.read_text(encoding="utf-8").split("# %%")
    (parameters,) = (n for n, cell in enumerate(cells) if "\nCHANGES = " in cell)
    assert "rd.run(\n    EXPERIMENT,\n    set=CHANGES," in cells[parameters + 1]
    assert "progress=progress(EXPERIMENT)" in cells[parameters + 1]
    assert "neither weak memory nor faults" not in "".join(cells)


def test_a_folder_that_is_not_there_has_no_stored_sweep(tmp_path: Path) -> None:
    assert notebook._stored_seeds(tmp_path / "results", "fabric/rate") is None
    (tmp_path / "results").mkdir()
    assert notebook._stored_seeds(tmp_path / "results", "fabric/rate") is None
