"""The end of `pyrdma run`: its points beside the paper's numbers, and its claims."""

from __future__ import annotations

import pytest

from pyrdma import registry
from pyrdma.commands import experiments, point_table
from pyrdma.runs import Report
from tests.harness.support import pyrdma
from tests.stored.tree import Tree
from tests.stored.tree import tree as tree

PEAK = 'decide.extreme("rate", "n")'
AT_4 = 'decide.value("rate", n=4)'
RETURNS = 'return {"rate": (scaled(point["n"]) + (point.seed - 1), "op/s")}'


def table(report: Report) -> list[str]:
    return list(point_table.lines(report, registry.load("fake/rates")))


def rows(report: Report) -> list[list[str]]:
    return [line.split() for line in table(report)]


def test_the_papers_number_stands_beside_its_point_alone(tree: Tree) -> None:
    tree.edit(PEAK, AT_4)
    assert rows(tree.run()) == [
        [],
        ["n", "rate", "paper"],
        ["Kop/s", "Kop/s"],
        ["1", "0.1"],
        ["4", "0.4", "0.4"],
    ]


def test_a_number_of_several_points_stands_beside_none(tree: Tree) -> None:
    assert ["n", "rate"] in rows(tree.run())
    tree.edit(PEAK, 'lambda data, claim: 2 * data.value("rate", "op/s", n=4)')
    assert ["n", "rate"] in rows(tree.run()), "the paper's number is not of this metric"


def test_other_settings_than_the_papers_have_none_of_its_numbers(tree: Tree) -> None:
    tree.edit(PEAK, AT_4)
    assert ["n", "rate"] in rows(tree.run(settings={"link.rate_gbps": 10}))
    assert ["n", "rate"] in rows(tree.run(profile="cx4"))


def test_a_bound_and_a_range_of_the_paper_are_shown_as_such(tree: Tree) -> None:
    tree.edit(PEAK, AT_4)
    file = tree.folder / "experiments/claims/fake.yaml"
    tree.edit("value: 400", "value: [300, 500]", file)
    assert ["4", "0.4", "0.3", "to", "0.5"] in rows(tree.run())
    tree.edit("value: [300, 500]", "value: 500, note: at most", file)
    assert ["4", "0.4", "<=", "0.5"] in rows(tree.run())


def test_seeds_have_one_row_with_their_median(tree: Tree) -> None:
    found = table(tree.run(seeds=(1, 2, 9)))
    assert ["1", "0.101"] in [line.split() for line in found], "of 100, 101 and 108"
    assert "3" in found[-1]


def test_a_point_that_failed_is_a_row_in_its_place(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "1")
    assert rows(tree.run())[-2:] == [["1", "failed"], ["4", "0.4"]]
    monkeypatch.setenv("FAKE_FAILS", "all")
    tree.edit("100", "101")
    assert table(tree.run()) == [], "there is no number to show"


def test_of_many_points_those_with_a_paper_and_those_that_failed_stay(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.edit(PEAK, 'decide.value("rate", n=60)')
    tree.edit("Axis([1, 4], full=[1, 2, 4])", "Axis(list(range(64)))")
    monkeypatch.setenv("FAKE_FAILS", "50")
    found = rows(tree.run())
    points = [row for row in found if row and row[0].isdigit()]
    assert len(points) == 20
    assert ["50", "failed"] in points
    assert ["60", "6", "0.4"] in points
    assert [int(row[0]) for row in points] == [*range(18), 50, 60], "in the order of the sweep"
    assert "44" in found[-1]


def test_as_many_metrics_as_fit_are_shown_and_the_others_named(tree: Tree) -> None:
    tree.edit(PEAK, 'decide.value("zz_latency_p99", n=4)')
    tree.edit("unit: op/s", "unit: ns", tree.folder / "experiments/claims/fake.yaml")
    names = [f"{kind}_latency_{end}" for kind in ("aa", "zz") for end in ("p50", "p99", "p999")]
    names += [f"number_{n}" for n in range(30)]
    more = ", ".join(f'"{name}": (400.0, "ns")' for name in names)
    tree.edit(RETURNS, RETURNS.replace('"op/s")}', f'"op/s"), {more}}}'))
    found = table(tree.run())
    assert max(len(line) for line in found) <= 100
    head = [line.split() for line in found[1:3]]
    assert head[0][:6] == ["n", "rate", *["aa_latency", "zz_latency"] * 2]
    assert head[0][6] == "paper", "the number with the paper's is not left out"
    assert head[1][:5] == ["Kop/s", "p50", "us", "p50", "us"]
    named = " ".join(found[5:]).split()
    hidden = (
        {*names}
        - {*head[0]}
        - {"aa_latency_p50", "aa_latency_p99"}
        - {
            "zz_latency_p50",
            "zz_latency_p99",
        }
    )
    assert {name for name in named if name in names} == hidden


def test_parameters_with_one_value_stand_below(tree: Tree) -> None:
    tree.edit('axes={"n"', 'axes={"kind": Axis(["only"]), "n"')
    assert [*map(str.split, table(tree.run()))][1] == ["n", "rate"]
    assert table(tree.run())[-1].split()[-1] == "kind=only"


def test_each_profile_of_an_axis_has_its_rows_and_its_papers_number(tree: Tree) -> None:
    tree.edit('axes={"n"', 'axes={"profile": Axis(["cx4", "cx5"]), "n"')
    tree.edit(PEAK, 'decide.value("rate", n=4, profile="cx4")')
    slower = 'scaled(point["n"]) / (1 + (point.profile == "cx4"))'
    tree.edit('scaled(point["n"])', slower)
    assert rows(tree.run())[1:7] == [
        ["n", "profile", "rate", "paper"],
        ["Kop/s", "Kop/s"],
        ["1", "cx4", "0.05"],
        ["4", "cx4", "0.2", "0.4"],
        ["1", "cx5", "0.1"],
        ["4", "cx5", "0.4"],
    ]


def test_the_command_ends_with_points_and_claims(tree: Tree) -> None:
    tree.edit(PEAK, AT_4)
    done = pyrdma("run", "fake/rates", "--out", str(tree.out), cwd=tree.folder)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[-1] == ["fake/peak", "held", "3/3", "400", "op/s", "401", "op/s"]
    assert ["4", "0.401", "0.4"] in lines, "the median of three seeds"


def test_a_line_of_a_claim_is_as_wide_as_the_terminal(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    decider = f'lambda data, claim: decide.Decision(True, "{"measured " * 20}")'
    tree.edit(PEAK, decider)
    experiments._show_numbers("fake/rates", tree.run(), tree.out, table=True)
    assert len(capsys.readouterr().out.splitlines()[-1]) == 100


def test_the_claims_of_a_part_of_a_sweep_are_not_judged(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    experiments._show_numbers("fake/rates", tree.run(settings={"n": 1}), tree.out, table=True)
    lines = capsys.readouterr().out
    assert "paper" not in lines, "the peak of one point is none"
    assert lines.split()[-1] == "fake/peak"
    assert "1 of 2 points are measured" in " ".join(lines.split())


def test_many_experiments_have_a_line_of_verdicts_each(tree: Tree) -> None:
    tree.edit("figure=draw,", "")
    for number in range(11):
        file = tree.file.with_name(f"f{number}.py")
        text = tree.file.read_text().replace("fake/rates", f"fake/f{number}")
        file.write_text(
            text.replace('decides={"fake/peak"', 'decides={} and {"fake/peak"') if number else text
        )
    tree.file.unlink()
    done = pyrdma("run", "all", "--out", str(tree.out), cwd=tree.folder)
    assert done.returncode == 0, done.stderr
    assert "1 held" in done.stdout
    assert "paper" not in done.stdout
    assert "Kop/s" not in done.stdout
