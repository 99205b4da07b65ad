"""The counts of steps: how a trace is read, and whether the lists are up to date."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pyrdma import _scope_trace, scopes
from pyrdma._scope_trace import FIRST_LEVEL, ORIGINS, Cost, Counts, Reader

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


def test_lines_by_where_they_come_from(tmp_path: Path) -> None:
    own, nic, shared, table = 0x600000, 0x700000, 0x800000, 0x900000
    touch_all = "".join(f" L {at:08x},8\n" for at in (own, nic, shared, table))
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


def counted() -> Counts:
    """Return counts that equal the lists of LOCO."""
    counts = Counts()
    for path in scopes.tables("loco"):
        for name, row in scopes.checked_in(path).items():
            lines = {origin: round(row[1 + i] * 1000) for i, origin in enumerate(ORIGINS)}
            counts.steps[name] = Cost(1000, round(row[0] * 1000), lines=lines)
    return counts


def test_a_difference_of_a_tenth_is_reported() -> None:
    counts = counted()
    assert scopes.differences("loco", counts) == []
    counts.steps["loco/find"].instructions = round(counts.steps["loco/find"].instructions * 1.05)
    assert scopes.differences("loco", counts) == []
    counts.steps["loco/find"].instructions = round(counts.steps["loco/find"].instructions * 1.1)
    counts.steps["runtime/post"].lines["memory"] += 2000
    del counts.steps["loco/judge"]
    found = "\n".join(scopes.differences("loco", counts))
    for name in ("loco/find", "runtime/post", "loco/judge"):
        assert name in found
    assert found.count("\n") == 2


def test_a_renewed_list_has_the_counts_and_their_origin() -> None:
    counts = counted()
    path = scopes.tables("loco")[0]
    counts.steps["runtime/post"] = Cost(2, 50, lines=dict.fromkeys(ORIGINS, 3))
    text = scopes.renewed(path, counts)
    assert "X(post, 25, 1.5, 1.5, 1.5, 1.5, 1.5)" in text
    assert "// machine: none" not in text
    assert text.count("\n") == path.read_text(encoding="utf-8").count("\n")


@pytest.mark.skipif(os.environ.get("PYRDMA_SCOPES") != "1", reason="minutes; PYRDMA_SCOPES=1")
@pytest.mark.parametrize("system", sorted(scopes.CALIBRATIONS))
def test_the_lists_are_up_to_date(system: str) -> None:
    assert shutil.which("valgrind"), "install valgrind"
    counts = scopes.measure(system)
    renew = f"renew the lists: pyrdma calibrate scopes --system {system} --write"
    assert scopes.differences(system, counts) == [], renew
    assert counts.covered >= 0.95
