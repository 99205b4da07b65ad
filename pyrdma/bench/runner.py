"""Runs benchmarks of pyrdma and its peers alternately, round after round, within a time budget.

A machine's speed drifts, and the speed of a virtual machine jumps. So each round runs every
benchmark once: both sides directly after one another, in the other order in the next round. Rounds
repeat while time is left. The report has the medians over the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pyrdma.errors import InvalidArgument, nearest

from .benchmark import Benchmark, PeerRun, Row, ratio

__all__ = ["run", "select"]

Notice = Callable[[str], None]


@dataclass
class _Samples:
    benchmark: Benchmark
    peer: PeerRun | None  # None after the peer was missing or failed
    ours: list[float] = field(default_factory=list)
    peers: list[float] = field(default_factory=list)
    seconds: float = 0.0  # the longest round so far
    failed: bool = False


def select(benchmarks: Sequence[Benchmark], names: Iterable[str]) -> list[Benchmark]:
    """Return the benchmarks whose names begin with one of `names`; without names, the default set.

    Raises
    ------
    InvalidArgument
        A name selects nothing; the message has the nearest ones.
    """
    wanted = list(names)
    if not wanted:
        return [benchmark for benchmark in benchmarks if not benchmark.opt_in]
    for name in wanted:
        if not any(benchmark.name.startswith(name) for benchmark in benchmarks):
            known = [benchmark.name for benchmark in benchmarks]
            hint = nearest(name, known) or f"; there are {', '.join(known)}"
            raise InvalidArgument(f"no benchmark begins with {name!r}{hint}")
    return [b for b in benchmarks if any(b.name.startswith(name) for name in wanted)]


def _usable_peer(benchmark: Benchmark, notice: Notice) -> PeerRun | None:
    if benchmark.peer is None:
        return None
    there = benchmark.peer.available()
    if there.ok:
        return benchmark.peer
    notice(
        f"SKIPPED: {benchmark.peer.name} beside {benchmark.name}: {there.reason}; "
        f"to get it: {there.install_command}"
    )
    return None


def _measure_ours(samples: _Samples, notice: Notice) -> None:
    if samples.failed:
        return
    try:
        samples.ours.append(samples.benchmark.ours())
    except Exception as error:  # a failing benchmark must not end the others
        notice(f"FAILED: {samples.benchmark.name}: {type(error).__name__}: {error}")
        samples.failed = True


def _measure_peer(samples: _Samples, notice: Notice) -> None:
    if samples.peer is None:
        return
    try:
        samples.peers.append(samples.peer.measure())
    except Exception as error:  # as above
        name = f"{samples.peer.name} beside {samples.benchmark.name}"
        notice(f"FAILED: {name}: {type(error).__name__}: {error}")
        samples.peer = None


def _one_round(samples: _Samples, number: int, notice: Notice) -> None:
    start = time.monotonic()
    sides = [_measure_ours, _measure_peer]
    for side in sides if number % 2 == 0 else reversed(sides):
        side(samples, notice)
    samples.seconds = max(samples.seconds, time.monotonic() - start)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _row(samples: _Samples) -> Row:
    benchmark = samples.benchmark
    ours = None if samples.failed else _median(samples.ours)
    peers = _median(samples.peers)
    return Row(
        name=benchmark.name,
        unit=benchmark.unit,
        value=ours,
        peer=benchmark.peer.name if benchmark.peer else None,
        peer_value=peers,
        ratio=ratio(benchmark.better, ours, peers),
    )


def run(
    benchmarks: Sequence[Benchmark],
    budget_s: float = 55.0,
    notice: Notice = print,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measure `benchmarks` and return a row for each, in their order.

    Every benchmark runs `Benchmark.least` times, mostly once, whatever the budget. It runs again
    only if its longest run so far fits into the rest of the budget.

    Parameters
    ----------
    benchmarks
        The benchmarks to measure.
    budget_s
        Time after which no further run starts, in seconds.
    notice
        Takes a line for each missing peer, and for each side that fails.
    progress
        Takes the name of the next run.
    """
    end = time.monotonic() + budget_s
    everything = [_Samples(b, _usable_peer(b, notice)) for b in benchmarks]
    for number in range(max((b.rounds for b in benchmarks), default=0)):
        for samples in everything:
            broken = samples.failed and samples.peer is None
            fits = number < samples.benchmark.least or time.monotonic() + samples.seconds < end
            if number < samples.benchmark.rounds and fits and not broken:
                progress(f"{samples.benchmark.name}, round {number + 1}")
                _one_round(samples, number, notice)
    return [_row(samples) for samples in everything]
