"""An error of an experiment's code names the file and the line of the user's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrdma import Error, claims, registry
from pyrdma.evidence import Evidence
from pyrdma.runs import Report
from tests.stored.tree import Tree
from tests.stored.tree import tree as tree

MEASURE = 'return {"rate": (scaled(point["n"]) + (point.seed - 1), "op/s")}'
DRAW = 'figures.line(ax, data, "rate", "n", label=LABEL)'


def place(file: Path, text: str) -> str:
    """Return a file and the line that has `text`, as a message does."""
    [line] = [n for n, row in enumerate(file.read_text().splitlines(), 1) if text in row]
    return f"({file}, line {line})"


def failure(report: Report) -> str:
    [reason] = set(report.outcome.failed.values())
    return reason


@pytest.mark.parametrize(
    "statement",
    ['{}["lacking"]', "import no_such_module", 'point["m"]', "int('x')"],
)
def test_measure(tree: Tree, statement: str) -> None:
    tree.edit(MEASURE, f"{statement}  # here\n    {MEASURE}")
    assert failure(tree.run()).endswith(place(tree.file, "# here"))


def test_a_helper_of_measure(tree: Tree) -> None:
    tree.edit("OFFSET = 0", "def offset():\n    return 1 / 0  # here", tree.helper)
    tree.edit("_helper.OFFSET", "_helper.offset()")
    assert failure(tree.run()).endswith(place(tree.helper, "# here"))


def test_a_value_that_measure_may_not_return(tree: Tree) -> None:
    tree.edit(MEASURE, 'return {"rate": "fast"}')
    assert failure(tree.run()).endswith(place(tree.file, "def measure"))


@pytest.mark.parametrize(
    "statement", ['{}["lacking"]', "figures.line(None, data)", 'data.frame["x"]']
)
def test_figure(tree: Tree, statement: str) -> None:
    tree.edit(DRAW, f"{statement}  # here")
    assert tree.run().figure_failed.endswith(place(tree.file, "# here"))


def test_a_figure_of_what_is_not_measured(tree: Tree) -> None:
    tree.edit(DRAW, 'figures.line(ax, data, "bandwidth", "n")  # here')
    assert tree.run().figure_skipped.endswith(place(tree.file, "# here"))


def test_what_figure_may_not_return(tree: Tree) -> None:
    tree.edit("return figure", "return None")
    assert tree.run().figure_failed.endswith(place(tree.file, "def draw"))


@pytest.mark.parametrize("statement", ["1 / 0", "import no_such_module", "raise SystemExit(3)"])
def test_an_import(tree: Tree, statement: str) -> None:
    tree.edit("LABEL =", f"{statement}  # here\nLABEL =")
    with pytest.raises(Error) as raised:
        registry.load("fake/rates")
    assert str(raised.value).endswith(place(tree.file, "# here"))


def test_where(tree: Tree) -> None:
    tree.edit("measure=measure", 'measure=measure,\n    where=lambda p: p["m"]')
    with pytest.raises(Error) as raised:
        tree.run()
    assert str(raised.value).endswith(place(tree.file, "where="))


def test_a_decider(tree: Tree) -> None:
    tree.edit('decide.extreme("rate", "n")', "lambda data, claim: 1 / 0")
    tree.run()
    [verdict] = claims.judged(Evidence(tree.out, "sim"))
    assert verdict.reason.endswith(place(tree.file, "1 / 0"))


def test_a_file_above_pyrdma_is_not_taken_for_pyrdma() -> None:
    """A user's file may lie beside the folder that has pyrdma and its packages."""
    above = Path(registry.__file__).parents[2]  # the folder of the tree, or of the packages
    file = above / "mine/read_rate.py"
    code = compile("def f():\n    Path(None)\nf()", str(file), "exec")
    with pytest.raises(TypeError) as raised:
        exec(code, {"Path": Path})
    assert registry.line_of(raised.value, file) == f"{file}, line 2"
