"""Runs add to a folder; claims are judged by whole sweeps of today's code alone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyrdma as rd
from pyrdma import provenance, results, runs, store
from pyrdma.claims import undecided
from tests.errors import raises, unnamed
from tests.stored.tree import Tree
from tests.stored.tree import tree as tree


def rows(tree: Tree, **where: Any) -> int:
    frame = rd.load(tree.out)
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return len(frame)


def test_a_subset_a_seed_and_an_override_add_to_the_table(tree: Tree) -> None:
    tree.run()
    assert tree.verdict().verdict == "held"
    tree.run(settings={"n": 4})
    tree.run(settings={"n": 3})
    tree.run(seeds=(7,), settings={"n": 1})
    tree.run(settings={"link.rate_gbps": 10})
    tree.run(profile="cx4")
    assert rows(tree) == 2 + 1 + 1 + 2 + 2
    assert rows(tree, n=3) == 1
    assert rows(tree, seed=7) == 1
    assert rows(tree, overrides="link.rate_gbps=10") == 2
    assert rows(tree, profile="cx4") == 2
    assert tree.verdict().verdict == "held"
    assert tree.verdict().measured == 400
    import pandas as pd

    exported = pd.read_parquet(tree.out / "fake/rates/sim/results.parquet")
    assert len(exported) == 8


@pytest.mark.parametrize("same", [True, 1.0, np.int64(1), [1.0, np.int64(4)]])
def test_an_equal_value_of_another_type_is_the_same_point(tree: Tree, same: Any) -> None:
    tree.run()
    assert tree.run(settings={"n": same}).outcome.measured == 0
    assert tree.run(settings={"n": np.int64(3)}).outcome.measured == 1
    assert rows(tree, n=3) == 1


def test_an_axis_whose_values_change_their_type_keeps_one_number_for_each(tree: Tree) -> None:
    tree.run(seeds=(1, 2))
    tree.edit("Axis([1, 4], full=[1, 2, 4])", "Axis([1.0, 2.5, 4.0])")
    report = tree.run(seeds=(1, 2))
    assert report.outcome.measured == 6
    assert report.figures
    assert rows(tree) == 6
    assert [*rd.load(tree.out).ci("rate", level=0.5)["values"]] == [2, 2, 2]


def test_overrides_that_differ_in_a_late_digit_are_two_points(tree: Tree) -> None:
    for rate in (10.0000001, 10.0000002):
        tree.run(settings={"link.rate_gbps": rate, "n": 1})
    assert rows(tree, overrides="link.rate_gbps=10.0000001") == 1


def test_a_median_is_over_one_code(tree: Tree) -> None:
    tree.run(seeds=range(1, 8))
    tree.edit("FACTOR = 100", "FACTOR = 200")
    report = tree.run(seeds=(1, 2))
    assert rows(tree, n=1) == 2, "of the same code"
    assert report.intervals is not None
    assert "200.5" in report.intervals.read_text()
    assert len(rd.load(tree.out, superseded=True)) == 18
    tree.edit("FACTOR = 200", "FACTOR = 100")
    assert tree.run(seeds=(8,)).outcome.measured == 2
    assert [*rd.load(tree.out).ci("rate", level=0.5)["values"]] == [8, 8], "seeds 1 to 7 as well"


def test_code_that_is_changed_back_is_drawn_again(tree: Tree) -> None:
    tree.run(quick=False)
    tree.edit("FACTOR = 100", "FACTOR = 200")
    tree.run()
    tree.edit("FACTOR = 200", "FACTOR = 100")
    report = tree.run(quick=False)
    assert report.outcome.measured == 0
    assert (report.points, report.note) == (3, "")
    assert [drawn.note for drawn in runs.draw("fake/rates", tree.out)] == [""]
    import pandas as pd

    exported = pd.read_parquet(tree.out / "fake/rates/sim/results.parquet")
    assert sorted(exported["value"]) == [100, 200, 400]


def test_a_quick_run_of_new_code_is_drawn_before_a_full_one_of_old(tree: Tree) -> None:
    tree.run(quick=False)
    tree.edit("FACTOR = 100", "FACTOR = 200")
    note = tree.run().note
    assert "1 of the 3 points" in note, "n=2 alone is of the old code"


def test_points_dated_in_the_future_do_not_outlive_their_run(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wrong_clock:
        wrong_clock.setattr(provenance, "now", lambda: "2999-01-01T00:00:00+00:00")
        tree.run(quick=False)
    tree.edit("FACTOR = 100", "FACTOR = 200")
    tree.run(quick=False)
    with pytest.warns(RuntimeWarning, match="run 1 .*2999.* run 2 .*a clock was wrong"):
        table = rd.load(tree.out)
    assert sorted(table["value"]) == [200, 400, 800]


def test_points_of_an_earlier_version_are_older_than_any_run(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(store, "_of_run", lambda content, _run: content)
        tree.run()
    tree.edit("FACTOR = 100", "FACTOR = 200")
    tree.run()
    assert sorted(rd.load(tree.out)["value"]) == [200, 800]
    assert sorted({m.run for m in results.stored_in(tree.out)}) == [0, 1]


def test_a_run_that_fails_wholly_keeps_all_and_names_the_line(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.run()
    monkeypatch.setenv("FAKE_FAILS", "all")
    report = tree.run(settings={"link.rate_gbps": 10})
    assert len(report.outcome.failed) == 2
    for reason in report.outcome.failed.values():
        assert unnamed(reason, "ValueError", "told to fail", tree.file, "line 19") == []
    assert rows(tree) == 2
    assert tree.verdict().verdict == "held"


def test_a_figure_that_fails_names_the_line(tree: Tree) -> None:
    tree.edit("figure, ax = figures.new()", "raise KeyError('x')")
    assert unnamed(tree.run().figure_failed, "KeyError", tree.file, "line 24") == []


def test_part_of_a_sweep_decides_nothing(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "pyrdma run fake/rates" in tree.verdict().reason
    monkeypatch.setenv("FAKE_FAILS", "1")
    tree.run()
    verdict = tree.verdict()
    assert verdict.verdict == "not evaluated"
    assert unnamed(verdict.reason, "1 of 2", "pyrdma run fake/rates") == []
    assert undecided(tree.out) == ["fake/rates"]
    monkeypatch.delenv("FAKE_FAILS")
    tree.run()
    assert tree.verdict().verdict == "held"
    assert undecided(tree.out) == []


def test_a_full_sweep_decides_before_a_quick_one(tree: Tree) -> None:
    tree.run()
    tree.edit("experiment = Exp", "FACTOR = 200\nexperiment = Exp")
    tree.run(quick=False)
    assert tree.verdict().measured == 800
    assert "full" not in tree.verdict().reason


def test_every_whole_seed_decides(tree: Tree) -> None:
    tree.run(seeds=(1, 21, 101))
    tree.run(seeds=(999,), settings={"n": 4})
    assert tree.verdict().measured == 420, "the median of three; the fourth seed is not whole"


def test_other_settings_decide_nothing(tree: Tree) -> None:
    tree.run(settings={"link.rate_gbps": 10})
    tree.run(profile="cx4")
    verdict = tree.verdict()
    assert verdict.verdict == "not evaluated"
    assert unnamed(verdict.reason, "link.rate_gbps=10", "cx4") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR = 100", "FACTOR = 101"),
        ("* n +", "* n * 1 +"),
        ("OFFSET = 0", "OFFSET = 1"),
        ('{"rate": (', '{"rate": (0 + '),
    ],
)
def test_other_code_is_stale_never_held_and_measured_again(tree: Tree, old: str, new: str) -> None:
    tree.run()
    tree.edit(old, new, tree.helper if "OFFSET" in old else None)
    verdict = tree.verdict()
    assert (verdict.verdict, verdict.measured) == ("stale", None)
    assert unnamed(verdict.reason, "2 of 2", "pyrdma run fake/rates") == []
    assert undecided(tree.out) == ["fake/rates"]
    tree.run(settings={"n": 4})
    assert unnamed(tree.verdict().reason, "1 of 2") == []
    assert tree.verdict().verdict == "stale"
    assert tree.run().outcome.measured == 1
    assert tree.verdict().verdict == "held"
    assert rows(tree) == 2
    assert len(rd.load(tree.out, superseded=True)) == 4, "nothing measured is lost"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("label 1", "label 2"),
        ("Title 1", "Title 2"),
        ("Docstring 1", "Docstring 2"),
        ("comment 1", "comment 2"),
        ("def scaled", "\n\n\ndef scaled"),
        ("figures.line(ax", "ax.set_title('x')\n    figures.line(ax"),
        ('decide.extreme("rate", "n")', 'decide.value("rate", n=4)'),
        ("UNUSED = 1", "UNUSED = 2"),
    ],
)
def test_what_the_measurement_does_not_reach_measures_nothing(
    tree: Tree, old: str, new: str
) -> None:
    tree.run()
    tree.edit(old, new, tree.helper if "UNUSED" in old else None)
    assert tree.verdict().verdict == "held"
    outcome = tree.run().outcome
    assert (outcome.measured, outcome.reused) == (0, 2)


OBJECTS = """
import collections, dataclasses, enum, fractions, functools, logging, numpy, pathlib

def doubled(f):
    @functools.wraps(f)
    def run(x):
        return WITH * f(x)
    return run

def scale(by):
    return lambda x: by * x

log = logging.getLogger("experiment")
WITH, RANGE, RATIO, QUEUE = 2, range(3), fractions.Fraction(1, 2), collections.deque([1])
ARRAY, BEST = numpy.zeros((2, 3)), max
FIRST, SECOND = scale(3), scale(4)
FOLDER = pathlib.Path("/data/a/t.csv")

ADD, TAKE = (lambda x: x + 7), (lambda x: x - 7)

class Word(enum.Enum):
    YES = "yes"

@dataclasses.dataclass
class Pair:
    first: int = 11
    def total(self):
        return self.first + 13

@functools.lru_cache
def cached(x):
    return x + 1

@doubled
def decorated(x):
    return x + 5
"""
USES = (
    "[log, RANGE, RATIO, QUEUE, ARRAY, BEST, FIRST, SECOND, FOLDER, TAKE, Word, Pair, cached, "
    "decorated]"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("WITH * f", "f"),
        ("x + 5", "x + 6"),
        ("x + 1", "x + 2"),
        ("x - 7", "x - 8"),
        ('"yes"', '"no"'),
        ("= 11", "= 12"),
        ("+ 13", "+ 14"),
        ("@dataclasses.dataclass", "@dataclasses.dataclass(order=True)"),
        ("scale(4)", "scale(5)"),
        ("range(3)", "range(4)"),
        ("Fraction(1, 2)", "Fraction(1, 3)"),
        ("deque([1])", "deque([2])"),
        ("(2, 3)", "(3, 2)"),
        ("= numpy.zeros((2, 3)), max", "= numpy.zeros((2, 3)), min"),
        ("/data/a/", "/data/b/"),
        ("K = 1", "K = 2"),
    ],
)
def test_every_kind_of_object_is_reached(tree: Tree, old: str, new: str) -> None:
    tree.edit("FACTOR = 100", f"{OBJECTS}\nFACTOR = 100")
    tree.edit(
        "    if os.environ",
        f"    {USES}\n    from experiments.fake import _late\n    if os.environ",
    )
    tree.edit('{"rate": (', '{"rate": (0 * _late.K + ')
    late = tree.file.with_name("_late.py")
    late.write_text("K = 1\n")
    assert tree.run().outcome.measured == 2
    logging.getLogger("some.other.name")
    assert tree.run().outcome.measured == 0, "equal in every state of the process"
    tree.edit(old, new, late if "K" in old else None)
    assert tree.run().outcome.measured == 2


def test_a_figure_of_old_and_new_code_says_so(tree: Tree) -> None:
    tree.run()
    tree.edit("FACTOR = 100", "FACTOR = 101")
    assert unnamed(tree.run(settings={"n": 4}).note, "1 of the 2") == []
    assert tree.run().note == ""


def test_a_fresh_run_in_real_time_replaces_and_deletes_nothing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.run(fabric="shm")
    monkeypatch.setenv("FAKE_FAILS", "all")
    assert len(tree.run(fabric="shm", fresh=True).outcome.failed) == 2
    assert rows(tree) == 2
    monkeypatch.delenv("FAKE_FAILS")
    assert tree.run(fabric="shm", fresh=True).outcome.measured == 2
    assert rows(tree) == 2


def test_a_figure_that_is_none_is_an_error_of_the_figure(tree: Tree) -> None:
    tree.edit("    return figure", "    return None")
    report = tree.run()
    assert unnamed(report.figure_failed, None) == []
    assert report.outcome.measured == 2


def test_the_command_for_stale_results_names_their_folder(tree: Tree) -> None:
    tree.run()
    tree.edit("FACTOR = 100", "FACTOR = 101")
    assert unnamed(tree.verdict().reason, f"--out {tree.out}") == []


def test_a_changed_profile_is_stale(tree: Tree) -> None:
    profile = tree.folder / "mine.toml"
    profile.write_text('name = "mine"\nextends = "cx5"\n')
    tree.edit('profile="cx5"', f'profile="{profile}"')
    tree.run()
    assert tree.verdict().verdict == "held"
    profile.write_text(
        'name = "mine"\nextends = "cx5"\n[link]\nrate_gbps = { value = 1, unit = "Gbps", '
        'source = "estimate: a test" }\n'
    )
    from pyrdma.profiles import Profile

    assert Profile.load(str(profile)).values()["link.rate_gbps"] == 1
    assert tree.verdict().verdict == "stale"
    assert tree.run().outcome.measured == 2


def test_real_time_is_of_one_machine(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyrdma import provenance

    for machine in ("CPU a", "CPU b"):
        monkeypatch.setattr(provenance, "machine", lambda name=machine: name)
        assert tree.run(fabric="shm").outcome.measured == 2
        assert tree.run(fabric="shm").outcome.measured == 0
    assert rd.load(tree.out)["machine"].value_counts().to_dict() == {"CPU a": 2, "CPU b": 2}
    assert tree.verdict("shm").verdict == "held"
    other = tree.folder / "other"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tree, "out", other)
        elsewhere.setattr(provenance, "machine", lambda: "CPU b")
        tree.run(fabric="shm")
    compared = rd.compare(tree.out, other)
    assert set(compared["machine"]) == {"CPU b"}
    assert set(compared["values_a"]) == {1}
    assert compared.attrs["only_a"] == 2


def test_run_returns_what_it_measured(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = rd.run("fake/rates", set={"n": 4}, seeds=[1, 2, 3], out=tree.out, fabric="shm")
    assert frame["seed"].tolist() == [1, 2, 3]
    assert frame["value"].tolist() == [400, 401, 402]
    assert set(frame["scope"]) == {"total"}
    monkeypatch.setenv("FAKE_FAILS", "1")
    with raises(rd.Error, "fake/rates", 1, "told to fail"):
        rd.run("fake/rates", out=tree.out, fabric="shm")
    with raises(rd.InvalidArgument, "fake/rates"):
        rd.run("fake/rates", seeds=[], out=tree.out, fabric="shm")


def test_a_changed_testbed_has_a_figure_of_its_own(tree: Tree) -> None:
    usual = tree.run().figures
    other = tree.run(settings={"link.rate_gbps": 10}).figures
    assert [p.name for p in usual] == ["rates.png", "rates.pdf"]
    assert [p.name for p in other] == ["rates-link.rate_gbps=10.png", "rates-link.rate_gbps=10.pdf"]


def test_what_is_stored_is_drawn_again(tree: Tree, tmp_path: Path) -> None:
    from pyrdma.runs import draw

    [png, _] = tree.run().figures
    before = png.read_bytes()
    png.unlink()
    tree.edit("label 1", "another label")
    [report] = draw("fake/rates", tree.out)
    assert report.figures[0] == png
    assert png.read_bytes() != before
    assert report.note == ""
    tree.edit("FACTOR = 100", "FACTOR = 101")
    [report] = draw("fake/rates", tree.out)
    assert unnamed(report.note, "2 of the 2") == []
    assert draw("fake/rates", tmp_path / "empty") == []
