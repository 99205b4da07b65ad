"""The closing line of a test run counts its tests, and a crash never counts as passed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.errors import unnamed
from tests.summary import builds, main, summarize, times_of_systems

GTEST = """<testsuites><testsuite name="A">
<testcase name="one" status="run" classname="A"/>
<testcase name="two" status="run" classname="A"><failure message="m"/></testcase>
<testcase name="three" status="run" classname="A"><skipped message="a.cc:3&#x0A;no DC"/></testcase>
<testcase name="four" status="notrun" classname="A"/>
</testsuite></testsuites>"""
PASSED = (
    '<testsuite><testcase classname="t" name="a"/><testcase classname="t" name="b"/></testsuite>'
)


def closing(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = main(str(folder))
    return code, capsys.readouterr().out.strip().splitlines()


def test_counts_all_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "native.xml").write_text(GTEST)
    (tmp_path / "python.xml").write_text(PASSED)
    (tmp_path / "checks.txt").write_text("passed ruff\nstatus 1 native\n")
    code, lines = closing(tmp_path, capsys)
    assert lines == ["skipped 1: native: no DC", "FAILED native: A.two", "4 passed, 1 failed"]
    assert code == 1


def test_all_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "python.xml").write_text(PASSED)
    (tmp_path / "checks.txt").write_text("")
    assert closing(tmp_path, capsys) == (0, ["2 passed, 0 failed"])


@pytest.mark.parametrize("row", ["failed native (ended with status 139)", "status 66 python"])
def test_crash_is_a_failure(row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "python.xml").write_text(PASSED)
    (tmp_path / "checks.txt").write_text(row + "\n")
    code, lines = closing(tmp_path, capsys)
    assert (code, lines[-1]) == (1, "2 passed, 1 failed")


def test_steps_and_slow_tests_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checks.txt").write_text("")
    (tmp_path / "times.txt").write_text("41 set-up\n7 Python tests\n")
    (tmp_path / "python.xml").write_text(
        '<testsuite><testcase classname="t" name="a" time="2.1"/>'
        '<testcase classname="t" name="b" time="0.2"/>'
        '<testcase classname="t" name="c" time="31.5"/></testsuite>'
    )
    _, lines = closing(tmp_path, capsys)
    assert [line.split() for line in lines] == [
        ["41", "s", "set-up"],
        ["7", "s", "Python", "tests"],
        ["48", "s", "in", "all"],
        ["slowest", "tests:"],
        ["32", "s", "python:", "t.c"],
        ["2", "s", "python:", "t.a"],
        ["3", "passed,", "0", "failed"],
    ]


def test_each_system_has_its_tests_and_its_part_of_the_build(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "checks.txt").write_text("")
    (reports / "native.xml").write_text(
        '<testsuite><testcase name="a" time="100" file="/native/systems/raft/a.cc"/>'
        '<testcase classname="Fuzz" name="Finds/raft" time="79"/>'
        '<testcase classname="tests.draft" name="b" time="500" file="/raft/native/fuzz/b.cc"/>'
        '<testcase classname="All" name="c/draft_store" time="3"/></testsuite>'
    )
    (tmp_path / "release").mkdir()
    processors = os.cpu_count() or 1
    (reports / "times.txt").write_text("20 set-up\n1000 lint\n900 native tests (asan): build\n")
    (tmp_path / "release/.ninja_log").write_text(
        "# ninja log v5\n"
        f"0\t{processors * 1000}\t1015000000000\tnative/unity_systems_raft_cxx.o\t1\n"
        f"0\t700000\t2720000000000\tnative/unity_systems_raft_tests_cxx.o\t1\n"
    )
    totals = summarize(reports)
    lines = times_of_systems(tmp_path, totals, builds(reports, 1000)[:1], ["raft", "paxos"])
    assert [line.split()[0] for line in lines] == ["180"]
    slow = times_of_systems(tmp_path, totals, builds(reports, 1000), ["raft", "paxos"])
    assert slow[0].split()[0] == f"{180 + 700 / processors:.0f}"
    assert unnamed(slow[1], "SLOW", "raft", 180, "search") == []


def test_nothing_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checks.txt").write_text("")
    assert closing(tmp_path, capsys) == (1, ["0 passed, 0 failed"])


def test_report_without_tests_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "native.xml").write_text('<testsuites><testcase status="notrun"/></testsuites>')
    (tmp_path / "python.xml").write_text(PASSED)
    (tmp_path / "checks.txt").write_text("")
    code, lines = closing(tmp_path, capsys)
    assert (code, lines[-1]) == (1, "2 passed, 1 failed")
    assert "no test ran" in lines[0]


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        ('<testcase classname="t" name="a"/>', ""),
        ('<testcase name="a"><failure message="m"/></testcase>', ""),
        ('<testcase name="a"><skipped message="no QEMU"/></testcase>', "no QEMU"),
        ("", "no report"),
    ],
)
def test_a_whole_run_without_real_verbs_says_so_in_its_last_line(
    cases: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "python.xml").write_text(PASSED)
    (tmp_path / "checks.txt").write_text("")
    if cases:
        (tmp_path / "softroce.xml").write_text(f"<testsuite>{cases}</testsuite>")
    main(str(tmp_path), what="all")
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert ("REAL VERBS DID NOT RUN" in last) == bool(said)
    assert last.endswith(said)
    main(str(tmp_path), what="native")
    assert "VERBS" not in capsys.readouterr().out.strip().splitlines()[-1]
