"""Random runs of simulated systems under random faults: seeds, replay, and minimised failures.

A seed decides everything: the faults and their times, the operations of each client, and the order
of events. The same seed with the same options replays a violation bit for bit.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from . import faults, protocol, provenance
from . import timeline as timelines
from ._native import native
from .arguments import Between, Count, Duration, Jobs, Seed, checked, shown
from .delta_debugging import ddmin, least_window
from .errors import Error, InvalidArgument
from .files import check_output, write_json
from .fuzz_summary import Summary
from .profiles import Profile
from .workers import Workers, labelled

__all__ = ["Options", "Summary", "differ", "fuzz", "minimise", "parse_ranges", "run", "systems"]

CHUNK = 16
"""Number of seeds that a worker takes at once."""

Ranges = tuple[tuple[int, int], ...]
Progress = Callable[[int, int, str], None]


def systems() -> list[dict[str, Any]]:
    """Return the systems that can be fuzzed.

    Each has a `name`, a `title`, `mutations`, `presets`, the kinds of `faults` that it can have,
    the rare `branches` that it counts, `fewest_nodes` and `most_nodes`, and `has_histories`:
    whether its runs record histories. `checks` has the end checks, each with the least share of
    seeds that make it. Seeds draw up to `usual_nodes` and `usual_operations`.
    """
    core: Any = native()
    return list(core.fuzz.scenarios())


@checked
@dataclass(frozen=True)
class Options:
    """The options of a seed's run.

    Attributes
    ----------
    nodes
        Number of nodes; drawn by each seed if None.
    operations
        Operations of all clients together. Each client draws its own before it begins. Their
        number is drawn by each seed if None.
    weak
        Whether memory is weak; otherwise it is strong. Drawn by each seed if None, mostly weak.
    faults
        Settings as ``{"loss.rate": 0.01, "crash.windows": 2}``; a random subset of all kinds for
        each seed if None. A kind with ``windows`` has so many, spread over all operations.
    kinds
        The kinds of `faults` that stay on; all if None.
    kept
        Ranges of operations that are executed; all if None.
    mutation
        A deliberate bug that the run must find.
    preset
        A preset of the system, such as paper; drawn by each seed if empty.
    duration_s
        Virtual time after which a run of a protocol's file ends; the file's own if None.
    """

    system: str = "fabric"
    nodes: Annotated[int, Between(2, 32)] | None = None
    operations: Annotated[int, Between(1, 1_000_000)] | None = None
    profile: str = "cx5"
    weak: bool | None = None
    faults: Mapping[str, float] | None = None
    kinds: tuple[str, ...] | None = None
    kept: Ranges | None = None
    mutation: str = ""
    preset: str = ""
    duration_s: Duration | None = None

    @checked
    def replay(self, seed: Seed, fingerprint: Seed | None = None) -> str:
        """Return the command that runs `seed` again."""
        words = ["pyrdma", "replay", self.system, "--seed", str(seed)]
        if self.nodes is not None:
            words += ["--nodes", str(self.nodes)]
        if self.operations is not None:
            words += ["--operations", str(self.operations)]
        words += ["--profile", self.profile]
        if self.weak is not None:
            words += ["--memory", "weak" if self.weak else "strong"]
        if self.faults is not None:
            words += ["--faults", "none"] if not self.faults else []
            for key, value in self.faults.items():
                words += ["--faults", f"{key}={value!r}"]
        if self.kinds is not None:
            words += ["--kinds", ",".join(self.kinds) or "none"]
        if self.kept is not None:
            words += ["--keep", format_ranges(self.kept)]
        if self.mutation:
            words += ["--mutation", self.mutation]
        if self.preset:
            words += ["--preset", self.preset]
        if self.duration_s is not None:
            words += ["--duration", repr(self.duration_s)]
        if fingerprint is not None:
            words += ["--expect", f"{fingerprint:016x}"]
        return shlex.join(words)


@checked
def run(
    options: Options,
    seed: Seed,
    *,
    trace: bool = False,
    history: bool = False,
    events: bool = False,
    timeline: timelines.Options | None = None,
) -> dict[str, Any]:
    """Run one seed; return counters, events and ``violations`` as pairs of kind and text.

    With `timeline` the file of a timeline is written, too; see `SimulatedCluster.timeline`.
    """
    found = (protocol.run if protocol.is_file(options.system) else _run_native)(
        options, seed, trace=trace, history=history, events=events, timeline=timeline
    )
    if timeline is not None:
        timelines.write(Path(timeline.path), found["timeline"])
    return found


def _run_native(
    options: Options,
    seed: int,
    *,
    trace: bool,
    history: bool,
    events: bool,
    timeline: timelines.Options | None,
) -> dict[str, Any]:
    if options.duration_s is not None:
        raise InvalidArgument(
            f"duration_s is {options.duration_s}; it is for the file of a protocol: give operations"
        )
    core: Any = native()
    values = _profile_values(options.profile)
    found: dict[str, Any] = core.fuzz.run(
        options.system,
        seed,
        values,
        nodes=options.nodes,
        operations=options.operations,
        weak=options.weak,
        faults=None if options.faults is None else dict(options.faults),
        kinds=None if options.kinds is None else list(options.kinds),
        kept=None if options.kept is None else list(options.kept),
        mutation=options.mutation,
        preset=options.preset,
        trace=trace,
        history=history,
        events=events,
        timeline=None if timeline is None else timeline.range_ps(),
    )
    return found


_loaded: dict[str, dict[str, float]] = {}


def _profile_values(name: str) -> dict[str, float]:
    if name not in _loaded:
        _loaded[name] = dict(Profile.load(name).values())
    return _loaded[name]


@checked
def fuzz(
    options: Options,
    seeds: Count,
    first: Annotated[int, Between(0, 2**63 - 1)] = 1,
    jobs: Jobs | None = None,
    out: Path | None = None,
    twice: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Run seeds `first` and up on all cores; failures are stored under ``OUT/fuzz/SYSTEM``.

    Ctrl-C ends the run; the summary then has the seeds that are done.
    """
    summary = Summary(options.system, shares=_shares(options))
    folder = None if out is None else out / "fuzz" / _name_of(options.system)
    if folder is not None:
        check_output(folder / "seed.json", "--out")
    run(replace(options, kept=((0, 0),)), first)  # raises at once if options are wrong
    for found in _each(options, seeds, first, jobs, twice, summary):
        summary.add(found)
        if found["violations"]:
            summary.violations.append(_store(options, found, folder))
        if found.get("differs"):
            summary.differing.append(found["seed"])
        if progress is not None:
            progress(summary.seeds, seeds, f"{summary.failed_seeds} failed")
    summary.differing.sort()
    summary.undecided.sort()
    summary.crashed_after.sort()
    summary.violations.sort(key=lambda violation: int(violation["seed"]))
    return summary


def _shares(options: Options) -> dict[str, float]:
    """Return the least shares of checks. They hold for seeds that draw everything."""
    if replace(options, profile=Options.profile) != Options(options.system):
        return {}
    [shares] = [each["checks"] for each in systems() if each["name"] == options.system] or [{}]
    return dict(shares)


def _each(
    options: Options, seeds: int, first: int, jobs: int | None, twice: bool, summary: Summary
) -> Iterator[dict[str, Any]]:
    chunks = iter(
        range(begin, min(begin + CHUNK, first + seeds))
        for begin in range(first, first + seeds, CHUNK)
    )
    workers = min(jobs or provenance.usable_cores(), -(-seeds // CHUNK))
    try:
        if workers <= 1:
            for chunk in chunks:
                for seed in chunk:
                    yield _run_one(options, seed, twice)
            return
        with Workers(workers) as pool:
            pending: set[Future[list[dict[str, Any]]]] = set()
            for chunk in chunks:
                pending.add(pool.submit(_run_chunk, options, chunk, twice))
                if len(pending) < 2 * workers:
                    continue
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
    except KeyboardInterrupt:
        summary.interrupted = True


@labelled(lambda options, chunk, _: f"{options.system}, seeds {chunk[0]} to {chunk[-1]}")
def _run_chunk(options: Options, chunk: Iterable[int], twice: bool) -> list[dict[str, Any]]:
    return [_run_one(options, seed, twice) for seed in chunk]


def _run_one(options: Options, seed: int, twice: bool) -> dict[str, Any]:
    found = run(options, seed)
    if twice:
        found["differs"] = run(options, seed)["fingerprint"] != found["fingerprint"]
    return found


def _name_of(system: str) -> str:
    return Path(system).stem if protocol.is_file(system) else system


def _store(options: Options, found: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    record = {
        "system": options.system,
        "seed": found["seed"],
        "fingerprint": f"{found['fingerprint']:016x}",
        "kinds": found["kinds"],
        "violations": [{"kind": kind, "text": text} for kind, text in found["violations"]],
        "replay": options.replay(found["seed"], found["fingerprint"]),
    }
    if folder is None:
        return record
    path = folder / f"seed-{found['seed']}.json"
    try:
        write_json(path, record)
    except Error as error:  # what was found matters more than its file
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        return record
    return {**record, "file": str(path)}


@checked
def differ(options: Options, seed: Seed) -> str | None:
    """Run `seed` twice; return where the events of the runs differ first, or None if nowhere."""
    one, other = (run(options, seed, events=True)["recorded"] for _ in range(2))
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            what = [f"{e[0] / 1000:.3f} ns, {e[2] or 'an event of the simulator'}" for e in (a, b)]
            return f"event {index} differs: first at {what[0]}; then at {what[1]}"
    if len(one) != len(other):
        return f"event {min(len(one), len(other))} happened in one run only"
    return None


# ---- minimised failures ----


@checked
def parse_ranges(text: str) -> Ranges:
    """Return ranges from ``3,5-9``, or from the file ``@PATH`` that holds such a text."""
    if text.startswith("@"):
        text = Path(text[1:]).read_text()
    ranges = []
    for part in text.replace("\n", ",").split(","):
        low, _, high = part.strip().partition("-")
        if not part.strip():
            continue
        if not low.isdigit() or not (high or low).isdigit():
            raise InvalidArgument(
                f"the text has {shown(part.strip())}; give numbers and ranges, for example 3,5-9"
            )
        ranges.append((int(low), int(high or low)))
    return tuple(ranges)


def format_ranges(ranges: Ranges) -> str:
    """Return the text that `parse_ranges` reads."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges) or "4294967295"


def _ranges(ids: Sequence[int]) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for number in sorted(ids):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


@checked
def minimise(
    options: Options, seed: Seed, progress: Callable[[str], None] | None = None
) -> tuple[Options, dict[str, Any]]:
    """Return options with fewer faults and operations that still fail alike, and their run.

    Delta debugging (Zeller and Hildebrandt 2002) drops kinds of faults, and last operations. In
    between, bisection drops the last faults and then the first ones. Two runs fail alike if their
    first violations are of the same kind.

    Raises
    ------
    InvalidArgument
        The seed does not fail.
    """
    found = run(options, seed)
    if not found["violations"]:
        raise InvalidArgument(
            f"seed {seed} has no violation with these options: nothing to minimise"
        )
    kind = found["violations"][0][0]
    if not protocol.is_file(options.system):
        drawn = {name: found[name] for name in ("nodes", "operations", "weak", "faults")}
        options = replace(options, **drawn)

    def fails(candidate: Options) -> bool:
        violations = run(candidate, seed)["violations"]
        return bool(violations) and violations[0][0] == kind

    kinds = ddmin(list(found["kinds"]), lambda some: fails(replace(options, kinds=tuple(some))))
    options = replace(options, kinds=tuple(kinds))
    if progress is not None:
        progress(f"{len(kinds)} of {len(found['kinds'])} kinds of faults are needed")
    options = _with_few_faults(options, seed, fails, progress)
    if protocol.is_file(options.system):
        options = protocol.shorter(options, fails, found["virtual_ns"], progress)
        return options, run(options, seed)
    last = found["operations"] - 1
    whole = options.kept or ((0, last),)
    ids = [i for low, high in whole for i in range(low, min(high, last) + 1)]
    ids = ddmin(ids, lambda some: fails(replace(options, kept=_ranges(some))))
    options = replace(options, kept=_ranges(ids))
    if progress is not None:
        progress(f"{len(ids)} operations are needed")
    return options, run(options, seed)


def _with_few_faults(
    options: Options,
    seed: int,
    fails: Callable[[Options], bool],
    progress: Callable[[str], None] | None,
) -> Options:
    """Return options without the faults before and after those that the failure needs."""
    count = sum(run(options, seed)["fired"].values())
    drawn = protocol.faults_of(options, seed) if options.faults is None else options.faults
    kept = {*(options.kinds or ()), *faults.OF_ALL_KINDS}
    settings = {k: v for k, v in drawn.items() if k.split(".")[0] in kept}

    def between(first: int, last: int) -> Options:
        return replace(options, faults={**settings, "first_fault": first, "last_fault": last})

    if not count or not fails(between(0, count - 1)):
        return options
    window = least_window(count, lambda *some: fails(between(*some)))
    if progress is not None:
        progress(f"faults {window[0]} to {window[1]} of {count} are needed")
    return between(*window)
