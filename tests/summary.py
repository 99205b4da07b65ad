"""Add up the reports of a test run: times, also by system, skips, failures, and a closing line."""

from __future__ import annotations

import os
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SLOWEST = 15
LONG_S = 2.0
"""Largest number of slow tests that the summary names, and the least time of such a test."""
SYSTEM_S = 180.0
"""Time that a system may take of a run. The summary reports more; a busy machine takes longer."""
SYSTEMS = Path(__file__).resolve().parents[1] / "native/systems"


@dataclass
class Totals:
    """The totals of a run."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    """By test."""
    files: dict[str, str] = field(default_factory=dict)
    """Source files of the tests whose report names the file."""


def add_report(totals: Totals, path: Path) -> None:
    """Add a JUnit report of GoogleTest or pytest."""
    # GoogleTest lists disabled tests and tests outside of its filter as not run.
    cases = ET.parse(path).getroot().iter("testcase")
    ran = [case for case in cases if case.get("status") != "notrun"]
    if not ran:
        totals.failed.append(f"{path.stem}: no test ran; does the filter match any?")
    for case in ran:
        name = f"{path.stem}: {case.get('classname', '')}.{case.get('name', '')}"
        totals.seconds[name] = float(case.get("time", 0))
        totals.files[name] = case.get("file", "")
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            totals.failed.append(name)
        elif skip is not None:
            reason = skip.get("message") or (skip.text or "").strip() or "no reason given"
            totals.skipped[f"{path.stem}: {reason.splitlines()[-1]}"] += 1
        else:
            totals.passed += 1


def add_checks(totals: Totals, path: Path) -> None:
    """Add the checks that pass or fail as a whole, one per line.

    A `status` line means that a command failed although it wrote its report. The line counts as a
    failure unless the report has failures itself.
    """
    for line in path.read_text().splitlines():
        result, name = line.split(" ", 1)
        if result == "passed":
            totals.passed += 1
        elif result == "failed":
            totals.failed.append(name)
        else:
            status, report = name.split(" ", 1)
            if not any(row.startswith(f"{report}: ") for row in totals.failed):
                totals.failed.append(f"{report}: ended with status {status} though no test failed")


def summarize(folder: Path) -> Totals:
    """Add up all reports in a folder."""
    totals = Totals()
    for path in sorted(folder.glob("*.xml")):
        add_report(totals, path)
    add_checks(totals, folder / "checks.txt")
    return totals


def times(folder: Path, totals: Totals) -> list[str]:
    """Return lines on the times of all steps in their order, and of the slowest tests."""
    steps = folder / "times.txt"
    rows = [line.split(" ", 1) for line in steps.read_text().splitlines()] if steps.exists() else []
    whole = sum(int(seconds) for seconds, _ in rows)
    lines = [f"{int(seconds):6} s  {name}" for seconds, name in rows]
    lines += [f"{whole:6} s  in all"] if rows else []
    longest = sorted(totals.seconds.items(), key=lambda row: row[1], reverse=True)
    slow = [(name, seconds) for name, seconds in longest[:SLOWEST] if seconds >= LONG_S]
    lines += ["slowest tests:"] if slow else []
    return lines + [f"{seconds:6.0f} s  {name}" for name, seconds in slow]


def builds(folder: Path, since: float) -> list[tuple[float, float]]:
    """Return begin and end of each step that waits for a build, in seconds since 1970."""
    found = []
    steps = folder / "times.txt"
    for line in steps.read_text().splitlines() if steps.exists() else []:
        seconds, name = line.split(" ", 1)
        if name == "set-up" or name.endswith(": build"):
            found.append((since, since + int(seconds)))
        since += int(seconds)
    return found


def times_of_systems(
    build: Path, totals: Totals, waits: list[tuple[float, float]], systems: list[str]
) -> list[str]:
    """Return lines on the time of each system: its tests, and its share of the waits for builds.

    A test or an object file belongs to the system whose name is a word of its name or path. Object
    files are compiled in parallel, so their time is divided by the number of processors. Compiling
    beside other steps, at idle priority (tests/run.sh), does not count.
    """
    seconds = dict.fromkeys(systems, 0.0)
    for name, took in totals.seconds.items():
        for system in systems:
            if _is_of(system, name) or _is_of(system, totals.files.get(name, "")):
                seconds[system] += took
    for log in build.glob("*/.ninja_log"):
        for line in log.read_text().splitlines()[1:]:
            begin, end, written, name, *_ = line.split("\t")
            done = int(written) / 1e9
            began = done - (int(end) - int(begin)) / 1000
            waited = sum(max(0.0, min(done, last) - max(began, first)) for first, last in waits)
            for system in systems:
                if _is_of(system, name):
                    seconds[system] += waited / (os.cpu_count() or 1)
    lines = [f"{took:6.0f} s  of this are {system}'s" for system, took in seconds.items() if took]
    return lines + [
        f"SLOW: {system} takes more than {SYSTEM_S:.0f} s; shorten its tests, or move searches "
        "to sh tests/run.sh search"
        for system, took in seconds.items()
        if took > SYSTEM_S
    ]


def _is_of(system: str, text: str) -> bool:
    within = text.rpartition("/native/")[2].lower()  # paths above the tree do not count
    return re.search(rf"(?<![a-z0-9]){system}(?![a-z0-9])", within) is not None


def without_verbs(totals: Totals) -> str:
    """Return what the last line says of a run in which no test on real verbs passed."""
    of_guest = "softroce: "
    if any(name.startswith(of_guest) for name in totals.failed):
        return ""  # they ran, or the line of the failure says why not
    skipped = {name: n for name, n in totals.skipped.items() if name.startswith(of_guest)}
    there = sum(name.startswith(of_guest) for name in totals.seconds)
    if there > sum(skipped.values()):
        return ""
    why = next(iter(skipped), of_guest + "no report").removeprefix(of_guest)
    return f"; REAL VERBS DID NOT RUN: {why}"


def main(folder: str, since: float = 0.0, what: str = "") -> int:
    """Print the summary; return 0 only when a test ran and no test failed.

    Parameters
    ----------
    folder
        Folder of the reports, below the folder of the builds.
    since
        Start of the run, in seconds since 1970.
    what
        The run's kind, as ``tests/run.sh`` has it.
    """
    totals = summarize(Path(folder))
    print("\n".join(times(Path(folder), totals)))
    systems = sorted(path.name for path in SYSTEMS.iterdir() if path.is_dir())
    waits = builds(Path(folder), since)
    for line in times_of_systems(Path(folder).parent, totals, waits, systems):
        print(line)
    for reason, count in sorted(totals.skipped.items()):
        print(f"skipped {count}: {reason}")
    for name in totals.failed:
        print(f"FAILED {name}")
    verbs = without_verbs(totals) if what in ("all", "quick") else ""
    print(f"{totals.passed} passed, {len(totals.failed)} failed{verbs}")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
