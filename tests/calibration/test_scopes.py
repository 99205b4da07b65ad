"""The counts of steps: how a trace is read, and whether the lists are up to date."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pyrdma import _scope_trace, scopes, systems
from pyrdma._scope_trace import FIRST_LEVEL, ORIGINS, WINDOW, Cost, Counts, Reader

MARKS = {
    "world": "0x1000",
    "protocol": "0x1001",
    "thread": "0x1002",
    "region": "0x1003",
    "footprint": "0x1004",
    **{
        f"{kind} {name}": hex(0x2000 + 16 * place + (kind == "end"))
        for place, name in enumerate(
            ("calibration/inner", "calibration/outer", "calibration/call", "t/outer", "t/inner")
        )
        for kind in ("begin", "end")
    },
}
STACKS = (0x80000, 0x180000)


def mark(name: str) -> str:
    return f" L {int(MARKS[name], 16):08x},1\n"


def begin(thread: int) -> str:
    return mark("thread") + f" L {STACKS[thread]:08x},1\n"


def go(thread: int) -> str:
    return mark("protocol") + f" L {STACKS[thread] - 800:08x},1\n"


def run(count: int) -> str:
    return "I  00400000,3\n" * count


EMPTY = begin(0) + "".join(
    mark(f"begin calibration/{name}")
    + mark("world")
    + go(0)
    + (mark("begin calibration/inner") + mark("world") + go(0) + mark("end calibration/inner"))
    * (name == "outer")
    + (mark("world") + go(0)) * (name == "call")
    + mark(f"end calibration/{name}")
    for name in ("outer", "call")
)


@pytest.fixture(autouse=True)
def _count_from_the_first_pass_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scope_trace, "FIRST", 1)
    monkeypatch.setattr(_scope_trace, "LAST", 1)


def read(trace: str, tmp_path: Path) -> Counts:
    """Return the counts of a trace whose marks take no instructions."""
    path = tmp_path / "trace"
    path.write_text(EMPTY + trace, encoding="ascii")
    reader = Reader(MARKS, "t/outer")
    with path.open("rb") as stream:
        reader.read(stream)
    counts = Counts()
    reader.add_to(counts)
    return counts


def test_a_step_has_its_own_instructions_and_none_of_the_world(tmp_path: Path) -> None:
    counts = read(
        run(1000)
        + mark("begin t/outer")
        + run(5)
        + mark("begin t/inner")
        + run(7)
        + mark("world")
        + run(500)
        + go(0)
        + run(2)
        + mark("end t/inner")
        + run(3)
        + mark("end t/outer")
        + run(4)
        + mark("begin t/outer")
        + run(6)
        + mark("end t/outer")
        + run(2000),
        tmp_path,
    )
    assert (counts.steps["t/outer"].passes, counts.steps["t/outer"].instructions) == (2, 14)
    assert counts.steps["t/inner"].instructions == 9
    assert counts.outside == 4
    assert counts.covered == pytest.approx(23 / 27)


def test_the_loop_around_a_repeated_step_belongs_to_its_turns(tmp_path: Path) -> None:
    turn = mark("begin t/inner") + run(7) + mark("end t/inner")
    again = mark("world") + go(0) + run(3) + turn
    counts = read(
        mark("begin t/outer") + run(5) + turn + again + again + run(4) + mark("end t/outer"),
        tmp_path,
    )
    assert counts.steps["t/outer"].instructions == 9
    assert (counts.steps["t/inner"].passes, counts.steps["t/inner"].instructions) == (3, 27)


def test_a_pass_that_the_trace_cuts_off_does_not_count(tmp_path: Path) -> None:
    whole = mark("begin t/inner") + run(8) + mark("end t/inner")
    cut_off = begin(1) + mark("begin t/inner") + run(2)
    counts = read(
        mark("begin t/outer") + whole + cut_off + go(0) + mark("end t/outer"),
        tmp_path,
    )
    assert (counts.steps["t/inner"].passes, counts.steps["t/inner"].instructions) == (1, 8)


def test_lines_by_where_they_come_from(tmp_path: Path) -> None:
    own, nic, shared, table = 0x600000, 0x700000, 0x800000, 0x900000
    touch_all = "".join(run(WINDOW) + f" L {at:08x},8\n" for at in (own, nic, shared, table))
    counts = read(
        mark("region")
        + f" L {nic:08x},1\n L {nic + 63:08x},1\n"
        + mark("footprint")
        + f" L {table:08x},1\n L {table + 63:08x},1\n"
        + touch_all  # new memory
        + mark("world")
        + begin(1)
        + f" S {shared:08x},8\n"
        + mark("world")
        + f" S {nic:08x},8\n S {table:08x},8\n"
        + go(0)
        + mark("begin t/outer")
        + touch_all
        + touch_all
        + mark("end t/outer")
        + "".join(f" L {0xA00000 + 64 * i:08x},8\n" for i in range(FIRST_LEVEL))
        + mark("begin t/outer")
        + touch_all
        + mark("end t/outer"),
        tmp_path,
    )
    lines = counts.steps["t/outer"].lines
    assert lines == {"near": 3, "llc": 0, "nic": 1, "core": 1, "memory": 0}


def test_waits_for_lines_overlap_within_the_reorder_buffer(tmp_path: Path) -> None:
    def waits(between: int, kind: str) -> int:
        others = begin(1) + "".join(f" S 0080{i:02x}00,8\n" for i in range(2))
        counts = read(
            others
            + go(0)
            + mark("begin t/outer")
            + " L 00800000,8\n"
            + run(between)
            + f" {kind} 00800100,8\n"
            + mark("end t/outer"),
            tmp_path,
        )
        return counts.steps["t/outer"].lines["core"]

    assert waits(WINDOW - 1, "L") == 1
    assert waits(WINDOW, "L") == 2
    assert waits(0, "M") == 2


def test_plain_stores_wait_for_nothing(tmp_path: Path) -> None:
    def lines(kind: str) -> int:
        counts = read(
            " S 00800000,8\n"
            + mark("world")
            + begin(1)
            + " S 00800000,8\n"
            + mark("world")
            + go(0)
            + mark("begin t/outer")
            + f" {kind} 00800000,8\n"
            + mark("end t/outer"),
            tmp_path,
        )
        return counts.steps["t/outer"].lines["core"]

    assert (lines("S"), lines("L"), lines("M")) == (0, 1, 1)


def counted(system: str) -> Counts:
    """Return counts that equal the lists of a system."""
    counts = Counts()
    for path in scopes.tables(system):
        for name, row in scopes.checked_in(path).items():
            lines = {origin: round(row[1 + i] * 1000) for i, origin in enumerate(ORIGINS)}
            counts.steps[name] = Cost(1000, round(row[0] * 1000), lines=lines)
    return counts


@pytest.mark.parametrize("system", systems.NAMES)
def test_a_difference_of_a_tenth_is_reported(system: str) -> None:
    counts = counted(system)
    assert scopes.differences(system, counts) == []
    own = [name for name in counts.steps if name.startswith(f"{system}/")]
    step = max(own, key=lambda name: counts.steps[name].instructions)
    counts.steps[step].instructions = round(counts.steps[step].instructions * 1.05)
    assert scopes.differences(system, counts) == []
    counts.steps[step].instructions = round(counts.steps[step].instructions * 1.1)
    counts.steps["runtime/post"].lines["memory"] += 2000
    gone = next(name for name in own if name != step)
    del counts.steps[gone]
    found = scopes.differences(system, counts)
    assert sorted(line.partition(":")[0] for line in found) == sorted([gone, step, "runtime/post"])


@pytest.mark.parametrize("system", systems.NAMES)
def test_a_renewed_list_has_the_counts_and_their_origin(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "_compiler", lambda: "c++ 1")
    counts = counted(system)
    path = scopes.tables(system)[0]
    counts.steps["runtime/post"] = Cost(2, 50, lines=dict.fromkeys(ORIGINS, 3))
    text = scopes.renewed(path, counts)
    assert "X(post, 25, 1.5, 1.5, 1.5, 1.5, 1.5)" in text
    assert "// compiler: c++ 1\n" in text
    assert text.count("\n") == path.read_text(encoding="utf-8").count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("system", systems.NAMES)
def test_most_instructions_of_a_workload_lie_in_steps(system: str) -> None:
    first, *_ = scopes.calibrations(system)
    assert scopes.measure(system, [first]).covered >= 0.95


@pytest.mark.skipif(os.environ.get("PYRDMA_SCOPES") != "1", reason="minutes; PYRDMA_SCOPES=1")
@pytest.mark.parametrize("system", systems.NAMES)
def test_the_lists_are_up_to_date(system: str) -> None:
    assert shutil.which("valgrind"), "install valgrind"
    counts = scopes.measure(system)
    renew = f"renew the lists: pyrdma calibrate scopes --system {system} --write"
    assert scopes.differences(system, counts) == [], renew
    assert counts.covered >= 0.95
