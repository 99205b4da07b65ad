"""Tries a sample of the mutants of machine.py: by scenarios without options, and by tests."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import run
from tests.mutants.machine import generate, shuffled
from tests.mutants.program import ROOT, build_compiling, build_tests
from tests.mutants.schemata import ListError, Mutant

FILTERS = {"release": "-*Bugs*", "tsan": "-*Bugs*:*Fuzz.*:*Sim.*:*/sim*"}
"""The tests by build: without searches for other deliberate bugs, and with races: without the
simulator, which is one thread."""


@dataclass(frozen=True)
class Settings:
    """What a run tries. Without `operations`, each seed draws its own."""

    sample: int
    order: int
    only: Sequence[str]
    seeds: int
    operations: int | None
    with_tests: bool
    parallel: int


class NativeTests:
    """The native tests of a system. Raises ListError if the correct code fails one."""

    def __init__(self, system: str, mutants: Sequence[Mutant], preset: str) -> None:
        program = build_tests(system, mutants, preset)
        self._words = [str(program), "--gtest_fail_fast"]
        if preset == "tsan":  # it needs the address layout of older kernels
            self._words = ["setarch", platform.machine(), "-R", *self._words]
        self._filter = FILTERS[preset]
        self._limit_s = 1800.0
        began = time.monotonic()
        if failed := self._run(0, self._filter):
            raise ListError(f"the correct code of {preset} fails {failed}")
        self._limit_s = 30 + 5 * (time.monotonic() - began)

    def killer(self, number: int) -> str:
        """Return a test that fails twice with a mutant, or an empty text."""
        failed = self._run(number, self._filter)
        return failed if failed and self._run(number, failed) else ""

    def _run(self, number: int, chosen: str) -> str:
        """Return the first test that fails, crashes or hangs; an empty text if all pass."""
        words = [*self._words, "--gtest_color=no", f"--gtest_filter={chosen}"]
        values = {**os.environ, "PYRDMA_MUTANT": str(number), "TSAN_OPTIONS": "halt_on_error=1"}
        with subprocess.Popen(
            words, env=values, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            errors="replace", start_new_session=True,
        ) as ran:  # fmt: skip
            try:
                said, _ = ran.communicate(timeout=self._limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(ran.pid, signal.SIGKILL)
                said, _ = ran.communicate()
        if ran.returncode == 0:
            return ""
        failed: list[str] = re.findall(r"^\[  FAILED  \] ([\w./]+)", said, re.MULTILINE)
        begun: list[str] = re.findall(r"^\[ RUN      \] ([\w./]+)", said, re.MULTILINE)
        return [*failed[:1], *begun[-1:], "*"][0]


def try_sample(system: str, settings: Settings) -> bool:
    """Try mutants and print the verdicts; return whether none that is marked harmless was found."""
    every = generate(system)
    some = run.chosen(every, settings.only, None) if settings.only else every
    count = min(settings.sample, len(some))
    print(f"{system}: {len(every)} mutants; {count} of them by seed {settings.order}", flush=True)
    program, some = build_compiling(system, shuffled(some, settings.order), count)
    results = []
    for mutant, found in _judged(system, program, some, settings):
        results.append((mutant, found))
        print(_row(mutant, found), flush=True)
    killed: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for mutant, found in results:
        if not mutant.equivalent:
            tried[mutant.breaks] += 1
            killed[mutant.breaks] += run.verdict(mutant, found) == "killed"
    shares = ", ".join(f"{name} {killed[name]}/{count}" for name, count in sorted(tried.items()))
    print(
        f"{system}: killed {killed.total()} of {tried.total()}; harmless "
        f"{len(some) - tried.total()}; {shares}"
    )
    wrong = [m.name for m, found in results if m.equivalent and found.seeds]
    print("".join(f"not harmless: {name}\n" for name in wrong), end="", flush=True)
    return not wrong


def _judged(
    system: str, program: Path, some: Sequence[Mutant], settings: Settings
) -> Iterator[tuple[Mutant, run.Found]]:
    options = {} if settings.operations is None else {"operations": str(settings.operations)}
    names = subprocess.run([program, "names", system], capture_output=True, text=True, check=True)
    scenarios = tuple(names.stdout.split())
    some = [dataclasses.replace(m, scenarios=scenarios, options=options) for m in some]
    runner = run.Runner(program, settings.seeds, run.SEVERAL, settings.parallel)
    runner.control(some[:1])
    tests = {}
    if settings.with_tests:
        # Only threads can miss a lock.
        for preset, form in (("release", False), ("tsan", True)):
            if of := [mutant for mutant in some if bool(mutant.form) == form]:
                tests[form] = NativeTests(system, of, preset)
    for mutant, found in runner.each(some):
        if tests and len(found.seeds) < run.SEVERAL:
            name = tests[bool(mutant.form)].killer(mutant.number)
            found = run.Found("tests", 2, {1: (name,), 2: (name,)}) if name else found
        yield mutant, found


def _row(mutant: Mutant, found: run.Found) -> str:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    line = text.count("\n", 0, mutant.at) + 1
    by = f"  by {found.scenario}: {found.kind}, seed {min(found.seeds)}" if found.seeds else ""
    return f"{run.verdict(mutant, found)}{by}\n    {mutant.name}  [line {line}]"
