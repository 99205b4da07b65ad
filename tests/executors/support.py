"""What the tests of all executors compare: the content of point files, and what is left over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from pyrdma.store import read_folder

FOLDER = "fake/numbers/sim"


def content(out: Path) -> list[Any]:
    """Return all that the point files of a run hold, apart from times and provenance."""
    found = read_folder(out / FOLDER / "points")
    return [(m.identity, m.clock, m.machine, m.rows, m.samples, m.histograms) for m in found]


def table(out: Path) -> str:
    """Return the table of a run, with all digits."""
    frame = pd.read_parquet(out / FOLDER / "results.parquet")
    return str(frame.to_csv(index=False, float_format="%.17g"))


def points(out: Path) -> list[Path]:
    """Return the point files of a run."""
    return sorted((out / FOLDER / "points").glob("*.jsonl"))


def measured(marks: Path) -> list[tuple[int, int]]:
    """Return ``n`` and the process of each measurement that has begun, in their order."""
    words = [path.name.split("-") for path in marks.iterdir()]
    return [(int(n), int(process)) for n, process, _ in sorted(words, key=lambda w: int(w[2]))]


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def children(process: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[1]) == process:
            found.append(int(entry.name))
    return found


def left_over(temporary: Path) -> set[Path]:
    """Return what a run may have left: its temporary files, and the machine's shared memory."""
    return {*temporary.iterdir(), *Path("/dev/shm").glob("sem.*")}


def interrupt(process: int) -> None:
    """Send Ctrl-C to a process group, as a terminal does."""
    os.killpg(process, 2)
