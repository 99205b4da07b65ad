"""Tries the mutants of a system: which scenario finds each, from how many seeds.

    python -m tests.mutants.run [SYSTEM] [--seeds N] [--sample K] [--only NAME]...
    python -m tests.mutants.run [SYSTEM] --machine [--seed N] [--tests] ...

The exit status is 1 if fewer than 95 % of a list are found, or if a mutant that is marked as
equivalent is.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from tests.mutants.program import ROOT, build
from tests.mutants.schemata import ListError, Mutant, load

SEVERAL = 2
"""A mutant is killed if this many seeds of one scenario find it."""
ENOUGH = 20
"""After this many seeds that find it, a mutant is tried no longer."""
LEAST_SHARE = 0.95
LIMITS = {signal.SIGPROF, signal.SIGALRM}
"""The signals that end a mutant which hangs; see scenario.cc."""


@dataclass
class Found:
    """The seeds of one scenario that find a mutant, with the kinds and texts of violations."""

    scenario: str
    tried: int = 0
    seeds: dict[int, tuple[str, ...]] = field(default_factory=dict)
    said: str = ""

    @property
    def kind(self) -> str:
        counts = Counter(kind for kinds in self.seeds.values() for kind in kinds)
        return ",".join(kind for kind, _ in counts.most_common(2))


def try_mutant(
    program: Path,
    number: int,
    scenario: str,
    options: Sequence[str],
    seeds: int,
    stop: int,
) -> Found:
    """Run a mutant from seeds 1, 2, ..., up to `stop` seeds that find it."""
    found = Found(scenario)
    broken = 0
    while found.tried < seeds and len(found.seeds) < stop:
        words = [number, scenario, found.tried + 1, seeds - found.tried, stop - len(found.seeds)]
        ran = subprocess.run(
            [program, *map(str, words), *options],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        for line in ran.stdout.splitlines():
            seed, *kinds = line.split("\t")
            found.tried = int(seed)
            if kinds:
                found.seeds[found.tried] = tuple(kinds)
        if ran.returncode > 0:
            raise ListError(f"{scenario} {' '.join(options)}: {ran.stderr.strip()}")
        if ran.returncode == 0:
            found.said = ran.stderr
            break
        hangs = -ran.returncode in LIMITS
        found.tried += 1
        found.seeds[found.tried] = ("time" if hangs else "crash",)
        broken += 1
        if broken >= SEVERAL:  # each costs a limit or a start of the process
            break
    return found


def best(tries: Iterable[Found]) -> Found:
    """Return the first scenario that kills the mutant, or the one that finds it most often."""
    tries = list(tries)
    killed = [found for found in tries if len(found.seeds) >= SEVERAL]
    return killed[0] if killed else max(tries, key=lambda found: len(found.seeds))


class Runner:
    """Tries mutants, several at a time."""

    def __init__(self, program: Path, seeds: int, stop: int, parallel: int | None = None) -> None:
        self.program = program
        self.seeds = seeds
        self.stop = stop
        self.parallel = parallel or os.cpu_count()

    def control(self, mutants: Sequence[Mutant]) -> None:
        """Run the correct code from the same seeds. Raises ListError for an alarm."""
        runs = {(scenario, words(mutant)) for mutant in mutants for scenario in mutant.scenarios}

        def one(run: tuple[str, tuple[str, ...]]) -> Found:
            return try_mutant(self.program, 0, *run, self.seeds, 1)

        with ThreadPoolExecutor(self.parallel) as pool:
            for run, found in zip(sorted(runs), pool.map(one, sorted(runs)), strict=True):
                for seed, kinds in found.seeds.items():
                    raise ListError(
                        f"the correct code fails: {run[0]} {' '.join(run[1])} seed {seed}: "
                        f"{' '.join(kinds)}; {found.said[:500]}"
                    )

    def each(self, mutants: Sequence[Mutant]) -> Iterable[tuple[Mutant, Found]]:
        """Try each mutant, in order."""

        def one(mutant: Mutant) -> Found:
            tries = []
            for scenario in mutant.scenarios:
                run = (mutant.number, scenario, words(mutant), self.seeds, self.stop)
                tries.append(try_mutant(self.program, *run))
                if len(tries[-1].seeds) >= SEVERAL:
                    break
            return best(tries)

        with ThreadPoolExecutor(self.parallel) as pool:
            yield from zip(mutants, pool.map(one, mutants), strict=True)


def words(mutant: Mutant) -> tuple[str, ...]:
    """Return the options of a mutant as the executable takes them."""
    return tuple(f"{key}={value}" for key, value in sorted(mutant.options.items()))


def verdict(mutant: Mutant, found: Found) -> str:
    """Return what happened to a mutant."""
    count = len(found.seeds)
    if mutant.equivalent:
        return "KILLED, THOUGH MARKED AS EQUIVALENT" if count else "equivalent"
    if count >= SEVERAL:
        return "killed"
    return "SURVIVED" if count == 0 else f"SURVIVED {found.tried - count} OF {found.tried} SEEDS"


def row(mutant: Mutant, found: Found) -> str:
    """Return the line of a mutant."""
    text = f"{mutant.name:34} {verdict(mutant, found):11}"
    if found.seeds:
        text += (
            f" {found.kind:20} {found.scenario:12} first {min(found.seeds):4}"
            f" {len(found.seeds):4} of {found.tried:4}"
        )
    else:
        text += " " * 51
    return f"{text}  {mutant.equivalent or mutant.breaks}"


def summary(results: Sequence[tuple[Mutant, Found]]) -> tuple[str, bool]:
    """Return the last lines, and whether enough mutants were killed."""
    real = [(mutant, found) for mutant, found in results if not mutant.equivalent]
    firsts = sorted(min(f.seeds) for m, f in real if verdict(m, f) == "killed")
    alive = [mutant.name for mutant, found in real if verdict(mutant, found) != "killed"]
    wrong = [mutant.name for mutant, found in results if mutant.equivalent and found.seeds]
    share = len(firsts) / len(real) if real else 1.0
    text = (
        f"killed {len(firsts)} of {len(real)} ({share:.1%}); equivalent {len(results) - len(real)}"
    )
    if firsts:
        text += (
            f"; seeds to the kill: median {firsts[(len(firsts) - 1) // 2]}, "
            f"95th percentile {firsts[int(0.95 * (len(firsts) - 1) + 0.5)]}"
        )
    if alive:
        text += f"\nnot killed: {', '.join(alive)}"
    if wrong:
        text += f"\nnot equivalent: {', '.join(wrong)}"
    return text, share >= LEAST_SHARE and not wrong


def lists() -> dict[str, Path]:
    """Return the list of each system."""
    found = (ROOT / "tests" / "systems").glob("*/mutants.toml")
    return {path.parent.name: path for path in sorted(found)}


def chosen(mutants: Sequence[Mutant], only: Sequence[str], sample: int | None) -> list[Mutant]:
    """Return the named mutants, or a sample, the same for the same list."""
    unknown = set(only) - {mutant.name for mutant in mutants}
    if unknown:
        raise ListError(f"no mutant {', '.join(sorted(unknown))}; see the list")
    if only:
        return [mutant for mutant in mutants if mutant.name in only]
    if sample is None or sample >= len(mutants):
        return list(mutants)
    return sorted(random.Random(1).sample(mutants, sample), key=lambda mutant: mutant.number)


def _by_machine(system: str, given: argparse.Namespace) -> bool:
    from tests.mutants import sampled

    settings = sampled.Settings(
        sample=given.sample or 20,
        order=int(f"{date.today():%Y%m%d}") if given.seed is None else given.seed,
        only=given.only,
        seeds=given.seeds,
        operations=given.operations,
        with_tests=given.tests,
        parallel=given.parallel,
    )
    try:
        return sampled.try_sample(system, settings)
    except ListError as error:
        print(f"{system}: {error}", file=sys.stderr)
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants of a system."""
    known = lists()
    parser = argparse.ArgumentParser(prog="sh tests/run.sh mutants", description=__doc__)
    parser.add_argument("system", nargs="*", choices=[[], *known], default=[])
    parser.add_argument("--seeds", type=int, default=300, help="seeds for each scenario")
    parser.add_argument("--sample", type=int, help="only so many mutants of each list")
    parser.add_argument("--only", action="append", default=[], help="only this mutant; repeatable")
    parser.add_argument("--parallel", type=int, help="processes; one for each core by default")
    made = parser.add_argument_group("mutants by machine")
    made.add_argument("--machine", action="store_true", help="mutants by rules, not of the list")
    made.add_argument("--seed", type=int, help="draws the sample; today's date by default")
    made.add_argument("--operations", type=int, help="of each seed; drawn by default")
    made.add_argument("--tests", action="store_true", help="native tests may kill a mutant, too")
    given = parser.parse_args(arguments)
    enough = True
    for system in given.system or known:
        if given.machine:
            enough &= _by_machine(system, given)
            continue
        mutants = load(known[system])
        try:
            some = chosen(mutants, given.only, given.sample)
            runner = Runner(build(system, mutants), given.seeds, ENOUGH)
            runner.control(some)
            results = []
            for mutant, found in runner.each(some):
                print(row(mutant, found), flush=True)
                results.append((mutant, found))
        except ListError as error:
            print(f"{system}: {error}", file=sys.stderr)
            return 1
        text, killed = summary(results)
        print(f"{system}: {text}", flush=True)
        enough &= killed
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
