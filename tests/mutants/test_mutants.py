"""The lists of deliberate bugs fit the code, and a quick part of each list is found."""

import dataclasses
from pathlib import Path

import pytest

from pyrdma import systems
from tests.errors import raises
from tests.mutants import run
from tests.mutants.program import ROOT, build
from tests.mutants.schemata import ListError, Mutant, load, schema

LISTS = run.lists()
SEEDS = 40


def mutant(number: int, find: str, replace: str) -> Mutant:
    return Mutant(number, f"m{number}", "a.cc", find, replace, "", ("scenario",))


def test_every_system_has_a_list() -> None:
    assert sorted(LISTS) == sorted(systems.NAMES)


@pytest.mark.parametrize("system", LISTS)
def test_the_code_of_every_mutant_stands_once(system: str) -> None:
    mutants = load(LISTS[system])
    for file in {mutant.file for mutant in mutants}:
        text = (ROOT / file).read_text(encoding="utf-8")
        wrong = schema(text, [mutant for mutant in mutants if mutant.file == file])
        assert wrong.count("PYRDMA_MUTANT(") >= sum(mutant.file == file for mutant in mutants)


@pytest.mark.slow
@pytest.mark.parametrize("system", LISTS)
def test_quick_mutants_are_found(system: str) -> None:
    mutants = load(LISTS[system])
    quick = [mutant for mutant in mutants if mutant.quick]
    assert len(quick) >= 10
    runner = run.Runner(build(system, mutants), SEEDS, run.SEVERAL)
    runner.control(quick)
    results = list(runner.each(quick))
    assert [run.row(*result) for result in results if run.verdict(*result) != "killed"] == []


def test_mutants_share_a_text() -> None:
    text = "int f(int a) {\n  if (a > 1) return a + 1;\n  g(a);\n  return 0;\n}\n"
    mutants = [
        mutant(1, "a > 1", "a >= 1"),
        mutant(2, "if (a > 1) return a + 1;\n  g(a);", "g(a); return 7;"),
        mutant(3, "a + 1", "a"),
        mutant(4, "a + 1", "a + 2"),
        mutant(5, "g(a);", ""),
    ]
    assert schema(text, mutants).split("\n", 1)[1] == (
        "int f(int a) {\n"
        "  { if (PYRDMA_MUTANT(2)) { g(a); return 7; } else "
        "{ if ((PYRDMA_MUTANT(1) ? (a >= 1) : (a > 1))) return "
        "(PYRDMA_MUTANT(3) ? (a) : PYRDMA_MUTANT(4) ? (a + 2) : (a + 1));\n"
        "  { if (PYRDMA_MUTANT(5)) {  } else { g(a); } } } }\n"
        "  return 0;\n}\n"
    )


@pytest.mark.parametrize(
    ("text", "finds", "named"),
    [
        ("a b", ["c"], ["m1", 0, "a.cc"]),
        ("a b a", ["a"], ["m1", 2, "a.cc"]),
        ("a b c d", ["a b c", "b c d"], ["m1", "m2"]),
    ],
)
def test_a_list_that_does_not_fit_is_refused(
    text: str, finds: list[str], named: list[str | int]
) -> None:
    mutants = [mutant(number, find, "") for number, find in enumerate(finds, 1)]
    with raises(ListError, *named):
        schema(text, mutants)


def test_names_and_fields_are_checked(tmp_path: Path) -> None:
    entry = "[[mutant]]\nname = 'a'\nfile = 'f'\nfind = 'x'\nreplace = ''\nbreaks = ''\n"
    entry += "scenarios = ['s']\n"
    path = tmp_path / "mutants.toml"
    path.write_text(entry + entry)
    with raises(ListError, "mutants.toml", "a"):
        load(path)
    path.write_text(entry + "seeds = 3\n")
    with raises(ListError, "entry", 1, "seeds"):
        load(path)


def found(*seeds: int) -> run.Found:
    return run.Found("scenario", 40, dict.fromkeys(seeds, ("kind",)))


def test_the_verdict_counts_real_mutants() -> None:
    real = [mutant(number, "x", "y") for number in range(1, 21)]
    same = dataclasses.replace(mutant(21, "x", "y"), equivalent="no run shows it")
    results = [(one, found(3, 5)) for one in real]
    text, enough = run.summary([*results, (same, found())])
    assert enough
    assert "20 of 20 (100.0%); equivalent 1" in text
    assert "median 3" in text
    assert not run.summary([*results, (same, found(1))])[1]
    assert run.summary([*results[1:], (real[0], found(9))])[1]  # 19 of 20
    text, enough = run.summary([*results[2:], (real[0], found(9)), (real[1], found())])
    assert not enough
    assert "not killed: m1, m2" in text


def test_a_mutant_that_crashes_or_hangs_is_found(tmp_path: Path) -> None:
    program = tmp_path / "scenario"
    program.write_text("#!/bin/sh\necho $3\nkill -$1 $$\n")
    program.chmod(0o755)
    for number, kind in ((6, "crash"), (27, "time"), (14, "time")):
        tried = run.try_mutant(program, number, "s", [], 10, 5)
        assert tried.seeds == {2: (kind,), 4: (kind,)}


def test_an_alarm_of_the_correct_code_ends_the_run(tmp_path: Path) -> None:
    program = tmp_path / "scenario"
    program.write_text("#!/bin/sh\nprintf '1\\n2\\tlost message\\n'\n")
    program.chmod(0o755)
    with raises(ListError, "scenario", 2, "lost message"):
        run.Runner(program, 2, 5).control([mutant(1, "x", "y")])
