"""Experiments of the tree, run on the simulated fabric."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pyrdma import claims, figures, judging, registry
from pyrdma.data import Data
from pyrdma.evidence import Evidence
from pyrdma.runs import Options, execute
from tests.figures.faults import faults


def tables(out: Path, name: str) -> str:
    frame = pd.read_parquet(out / name / "sim/results.parquet")
    return str(frame.to_csv(index=False, float_format="%.17g"))


@pytest.mark.parametrize("name", ["spindle/fig1", "krcore/fig10b"])
def test_sweeps_are_bit_identical_with_one_and_two_workers(name: str, tmp_path: Path) -> None:
    for out, jobs in ((tmp_path / "one", 1), (tmp_path / "two", 2)):
        report = execute(name, Options(out=out, jobs=jobs, seeds=(5,)))
        assert not report.outcome.failed
        assert [path.suffix for path in report.figures] == [".png", ".pdf"], report.figure_failed
    assert tables(tmp_path / "one", name) == tables(tmp_path / "two", name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in registry.ids() if registry.load(n).measure])
def test_every_experiment_runs_quickly_draws_and_decides(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A whole run keeps the points for the notebooks (tests/run.sh).
    out = Path(os.environ.get("PYRDMA_TEST_RESULTS") or tmp_path)
    found: list[str] = []

    def save(figure: Any, *rest: Any, **given: Any) -> list[Path]:
        written = original(figure, *rest, **given)
        found.extend(faults(figure))
        return written

    original = figures.save
    monkeypatch.setattr(figures, "save", save)
    report = execute(name, Options(out=out))
    assert not report.outcome.failed
    assert not report.figure_failed
    assert found == []
    assert json.loads((report.folder / "run.json").read_text())["quick"] is True
    if report.figures:  # also of several runs
        table = pd.read_parquet(report.folder / "results.parquet")
        runs = pd.concat(table.assign(seed=seed) for seed in (1, 2, 3))
        make = registry.load(name).figure
        assert make is not None
        with figures.closing():
            make(Data(runs.reset_index(drop=True)), claims.load())
    for verdict in claims.judged(Evidence(out, "sim"), experiment=name):
        assert not verdict.reason.startswith(judging.DECIDER_FAILED), verdict
