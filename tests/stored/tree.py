"""A tree of experiments in a temporary folder: one fake paper whose points cost nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pyrdma import claims, registry
from pyrdma.runs import Options, Report, execute

CLAIMS = """
paper: {key: fake}
claims:
  - {id: peak, experiment: rates, kind: absolute, role: validation, series: s, params: {},
     metric: rate, value: 400, unit: op/s, tolerance_hint: exact, where: "1"}
"""

EXPERIMENT = '''
"""A fake figure."""
import os

from experiments.fake import _helper
from pyrdma import Axis, Experiment, decide, figures

LABEL = "label 1"
FACTOR = 100


def scaled(n):
    """Docstring 1."""
    return FACTOR * n + _helper.OFFSET  # comment 1


def measure(point):
    if os.environ.get("FAKE_FAILS") in (str(point["n"]), "all"):
        raise ValueError("told to fail")
    return {"rate": (scaled(point["n"]) + (point.seed - 1), "op/s")}


def draw(data, claims):
    figure, ax = figures.new()
    figures.line(ax, data, "rate", "n", label=LABEL)
    ax.legend()
    return figure


experiment = Experiment(
    id="fake/rates",
    title="Title 1",
    profile="cx5",
    axes={"n": Axis([1, 4], full=[1, 2, 4])},
    measure=measure,
    figure=draw,
    fabrics=("sim", "shm"),
    max_repetitions=1,
    decides={"fake/peak": decide.extreme("rate", "n")},
)
'''

HELPER = """
OFFSET = 0
UNUSED = 1
"""


class Tree:
    """The folder, its results, and commands on both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "results"
        self.out.mkdir()
        self.file = folder / "experiments/fake/rates.py"
        self.helper = self.file.with_name("_helper.py")
        self.file.parent.mkdir(parents=True)
        self.file.write_text(EXPERIMENT)
        self.helper.write_text(HELPER)
        (folder / "experiments/claims").mkdir()
        (folder / "experiments/claims/fake.yaml").write_text(CLAIMS)

    @property
    def points(self) -> list[Path]:
        return sorted((self.out / "fake/rates/sim/points").glob("*.jsonl"))

    def edit(self, old: str, new: str, file: Path | None = None) -> None:
        path = file or self.file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        forget()

    def run(self, seeds: Sequence[int] | None = (1,), **options: Any) -> Report:
        with ThreadPoolExecutor(1) as executor:
            return execute("fake/rates", Options(out=self.out, seeds=seeds, **options), executor)

    def verdict(self, fabric: str = "sim") -> claims.Verdict:
        [verdict] = claims.evaluate(self.out, fabric=fabric)
        return verdict


def forget() -> None:
    """Forget the loaded experiments, as a new process does."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "experiments"]:
        del sys.modules[name]
    for cached in (registry.root, registry.ids, registry.broken, claims._load):
        cached.cache_clear()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    made = Tree(tmp_path)
    monkeypatch.chdir(tmp_path)
    # A file that is edited within its time stamp's second must not come from the cache.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    yield made
    monkeypatch.undo()
    forget()
