"""The output of ``pyrdma fuzz`` and ``pyrdma replay``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyrdma import fuzz as fuzzing
from pyrdma import protocol
from pyrdma.errors import InvalidArgument
from pyrdma.files import check_output
from pyrdma.timeline import Options as Timelines
from pyrdma.timeline import line

__all__ = ["fuzz_command", "options_of", "replay_command"]


def options_of(
    system: str,
    nodes: int | None,
    operations: int | None,
    profile: str,
    memory: str | None,
    faults: Sequence[str],
    kinds: str | None,
    keep: str | None,
    mutation: str,
    preset: str,
    duration_s: float | None = None,
) -> fuzzing.Options:
    """Return options from the command line's values.

    Raises
    ------
    InvalidArgument
        A value has the wrong form; the message names it.
    """
    names = [found["name"] for found in fuzzing.systems()]
    if protocol.is_file(system):
        reproducibly()
        nodes = nodes or protocol.load(system).nodes
        memory = memory or "weak"
        given = {"operations": operations, "keep": keep, "mutation": mutation, "preset": preset}
        for name, value in given.items():
            if value:
                raise InvalidArgument(f"--{name}: the protocol of a file has none; leave it out")
    elif system not in names:
        raise InvalidArgument(
            f"unknown system {system!r}; these can be fuzzed: {', '.join(names)}, or a Python file "
            "with a protocol"
        )
    elif duration_s is not None:
        raise InvalidArgument("--duration is for the file of a protocol; use --operations")
    if memory not in (None, "weak", "strong"):
        raise InvalidArgument(f"--memory {memory!r}: give weak or strong")
    return fuzzing.Options(
        system,
        nodes,
        operations,
        profile,
        None if memory is None else memory == "weak",
        _settings(faults) if faults else None,
        None if kinds is None else tuple(k for k in kinds.split(",") if k and kinds != "none"),
        None if keep is None else fuzzing.parse_ranges(keep),
        mutation,
        preset,
        duration_s,
    )


def reproducibly() -> None:
    """Start this command again unless the order of Python's sets is the same in each process."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        words = [sys.executable, "-m", "pyrdma", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, "PYTHONHASHSEED": "0"})


def _settings(faults: Sequence[str]) -> dict[str, float]:
    settings = {}
    for text in faults:
        if text == "none":
            continue
        key, separator, value = text.partition("=")
        try:
            settings[key] = float(value)
        except ValueError:
            separator = ""
        if not separator:
            raise InvalidArgument(
                f"--faults {text!r}: give KEY=VALUE, for example loss.rate=0.01, or none"
            )
    return settings


def fuzz_command(
    options: fuzzing.Options,
    seeds: int,
    first: int,
    jobs: int | None,
    out: Path,
    twice: bool,
    coverage: bool,
    as_json: bool,
    progress: fuzzing.Progress | None,
) -> int:
    """Run seeds and print the summary.

    Returns 0 when all passed; 1 when one failed, when too few made a check or were decided, or,
    with `coverage`, when something was never reached; 130 after Ctrl-C.
    """
    summary = fuzzing.fuzz(options, seeds, first, jobs, out, twice, progress)
    differences = {seed: fuzzing.differ(options, seed) for seed in summary.differing[:3]}
    if as_json:
        document = {**summary.as_dict(), "differences": differences, "never": summary.never}
        print(json.dumps(document, indent=1))
    else:
        _show(summary)
        for seed, where in differences.items():
            found = where or "a third run did not reproduce the difference"
            print(f"the two runs of seed {seed} differ: {found}")
            print(f"  {options.replay(seed)}")
        if coverage:
            never = ", ".join(summary.never) or "nothing"
            print(f"never reached by {summary.seeds} seeds: {never}")
    if summary.failed_seeds or summary.too_many_undecided or summary.rare_checks:
        return 1
    if coverage and summary.never:
        return 1
    return 130 if summary.interrupted else 0


def _show(summary: fuzzing.Summary) -> None:
    fired, reached = sum(summary.fired.values()), sum(summary.reached.values())
    counts = ", ".join(f"{n} {name}" for name, n in summary.operations.items())
    print(f"{summary.system}: {summary.seeds} seeds, {summary.virtual_ns / 1e9:.6g} s virtual time")
    print(f"  {summary.events} events; operations: {counts}")
    print(f"  faults: {fired} fired, {reached} reached their target")
    for kind in sorted(summary.fired, key=lambda k: -summary.fired[k]):
        print(f"    {kind:20s} {summary.fired[kind]:>10d} {summary.reached[kind]:>10d}")
    if summary.begun:
        share = 100 * summary.begun_under_faults / summary.begun
        print(
            f"  {summary.begun} operations began, {share:.0f} % of them while faults were on; "
            f"{summary.ended} ended, {summary.met_fault} of them after a fault had an effect"
        )
    crashes = len(summary.crashed_after)
    for after in (1, 50) if crashes else ():
        late = sum(begun >= after for begun in summary.crashed_after)
        print(f"  crashes: {late} of {crashes} after {after} operations or more")
    if summary.branches:
        print("  rare branches of the protocols:")
        for branch in sorted(summary.branches):
            print(f"    {branch:34s} {summary.branches[branch]:>10d}")
    if summary.checks:
        print("  end checks, by the seeds that made them:")
    for name, check in sorted(summary.checks.items()):
        least = f", at least {100 * summary.shares[name]:.0f} %" if name in summary.shares else ""
        rare = "; TOO FEW" if name in summary.rare_checks else ""
        share = 100 * check.made / summary.seeds
        print(f"    {name:34s} {check.made:>10d}  {share:.0f} %{least}{rare}")
        for reason, count in check.skipped.most_common():
            print(f"      not in {count}: {reason}")
    if not protocol.is_file(summary.system):
        print(f"  recoveries: {summary.reconnects} connections, {summary.restarts} nodes")
    for record in summary.violations[:10]:
        first = record["violations"][0]
        print(f"seed {record['seed']}: {first['kind']}: {first['text']}")
        print(f"  {record['replay']}")
    if len(summary.violations) > 10:
        print(f"... and {len(summary.violations) - 10} more seeds")
    print(f"violations: {summary.failed_seeds} of {summary.seeds} seeds failed")
    if summary.undecided:
        seeds = " ".join(map(str, summary.undecided[:5]))
        print(
            f"undecided: {len(summary.undecided)} seeds, whose histories the checker gave up on "
            f"({seeds}); give fewer operations or more nodes"
        )
    if summary.bound is not None:
        print(f"  with 95 % confidence fewer than {summary.bound:.3g} of all seeds fail")
    if summary.interrupted:
        print("interrupted: the numbers count the finished seeds only")


def replay_command(
    options: fuzzing.Options,
    seed: int,
    trace: str | None,
    history: str | None,
    timeline: Timelines | None,
    expect: str | None,
    smaller: bool,
    as_json: bool,
) -> int:
    """Run one seed again and print its outcome; 0 without a violation, otherwise 1."""
    for option, path in (("--trace", trace or "-"), ("--history", history or "-")):
        if path != "-" and (Path(path).is_dir() or not Path(path).exists()):
            check_output(Path(path), option)
    if history is not None:
        _check_history(history, options, seed)
    if smaller:
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr)  # noqa: E731
        options, _ = fuzzing.minimise(options, seed, say)
    found = fuzzing.run(
        options, seed, trace=trace is not None, history=history is not None, timeline=timeline
    )
    if trace is not None:
        _write(trace, "".join(line + "\n" for line in found["trace"]))
    fingerprint = f"{found['fingerprint']:016x}"
    command = options.replay(seed, found["fingerprint"])
    if as_json:
        left_out = ("trace", "histories", "recorded", "timeline")
        document: dict[str, Any] = {k: v for k, v in found.items() if k not in left_out}
        print(json.dumps({**document, "fingerprint": fingerprint, "replay": command}, indent=1))
    else:
        print(
            f"seed {seed}: fingerprint {fingerprint}, {found['events']} events, "
            f"{found['virtual_ns']} ns, faults: {' '.join(found['kinds']) or 'none'}"
        )
        if timeline is not None:
            print(f"timeline: {line(timeline.path, found['timeline'])}")
        for kind, text in found["violations"]:
            print(f"{kind}: {text}")
        if smaller:
            print(command)
    if history is not None:
        _write_histories(history, options.system, found)
    if expect is not None and expect.lower() != fingerprint:
        print(
            f"fingerprint {fingerprint}, expected {expect}: the run differs, or the "
            "code, the profile or an option",
            file=sys.stderr,
        )
        return 1
    for model in found["undecided"]:
        print(f"undecided: the checker of {model} gave up on the history")
    return 1 if found["violations"] or found["undecided"] else 0


def _check_history(path: str, options: fuzzing.Options, seed: int) -> None:
    """Raise before the work if the system never has a history."""
    if not protocol.is_file(options.system):
        fuzzing.run(replace(options, kept=((0, 0),)), seed, history=True)
    elif not protocol.load(options.system).model:
        raise InvalidArgument(
            f"--history {path}: the protocol of {options.system} has no model for 'pyrdma check'; "
            "give it one, as model='register', or leave --history out"
        )


def _write_histories(path: str, system: str, found: Mapping[str, Any]) -> None:
    """Write the judged histories: a violated one, or else the first, as `path`, others beside it.

    The header of each names its model, so that ``pyrdma check`` needs no option.
    """
    bad = {*found["undecided"], *(kind for kind, _ in found["violations"])}
    histories = sorted(found["histories"], key=lambda pair: pair[0] not in bad)
    if not histories:
        text = f"--history {path}: {system} has no history for 'pyrdma check' from this seed"
        if not bad:
            raise InvalidArgument(f"{text}; leave --history out")
        print(f"{text}: nothing judged it", file=sys.stderr)
        return
    (model, text), *others = histories
    _write(path, text)
    if path == "-":
        return
    print(f"{path}: a history for the model {model}", file=sys.stderr)
    for model, text in others:
        beside = Path(path).with_stem(f"{Path(path).stem}-{model}")
        _write(str(beside), text)
        print(f"{beside}: for the model {model}", file=sys.stderr)


def _write(path: str, text: str) -> None:
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)  # also into a pipe
