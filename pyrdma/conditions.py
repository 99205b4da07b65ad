"""What ran during a point, what happened on its hosts, and what its numbers are worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from .data import OVERSUBSCRIBED
from .result import Result

__all__ = ["UNKNOWN_NS", "Conditions", "collect", "collected", "flag_threads"]

ONE_WAY = "one_way"
"""Part of the names of metrics that compare the clocks of two hosts."""

SHARE = 0.1
"""A one-way time is withheld if the clocks' error may be more than this share of it."""

UNKNOWN_NS = 3_600_000_000_000
"""Bound of clocks that could not be compared: longer than any time that is measured."""

collected: ContextVar[Conditions | None] = ContextVar("conditions", default=None)
"""The conditions of the point that this thread measures, whatever clusters it makes."""


@contextmanager
def collect() -> Iterator[Conditions]:
    """Collect the conditions of all clusters that this thread makes inside the block."""
    found = Conditions()
    token = collected.set(found)
    try:
        yield found
    finally:
        collected.reset(token)


@dataclass
class Conditions:
    """Flags of a point, the bound of the error of its clocks, and the workloads that ran.

    Attributes
    ----------
    flags
        ``oversubscribed``, ``retransmit``, ``receiver not ready``, ``login network``,
        ``clocks corrected``, ``clocks unknown``, ``one-way times withheld``,
        ``histories withheld``.
    clock_bound_ns
        Largest difference between the times of two hosts at one moment.
    workloads
        Each different run of a workload: its name, its number of nodes, and its parameters with the
        defaults.
    """

    flags: list[str] = field(default_factory=list)
    clock_bound_ns: int = 0
    workloads: list[dict[str, Any]] = field(default_factory=list)

    def ran(self, workload: str, nodes: int, parameters: Mapping[str, Any]) -> None:
        """Note the run of a workload."""
        run = {"workload": workload, "nodes": nodes, "parameters": dict(parameters)}
        if run not in self.workloads:
            self.workloads.append(run)

    def flag(self, text: str) -> None:
        """Add a flag, here and to the point that this thread measures."""
        for place in (self, collected.get()):
            if place is not None and text not in place.flags:
                place.flags.append(text)

    def judge(self, result: Result, bound_ns: int) -> Result:
        """Return a result without the one-way times and histories that the clocks cannot tell."""
        point = collected.get()
        self.clock_bound_ns = max(self.clock_bound_ns, bound_ns)
        if point is not None:
            point.clock_bound_ns = max(point.clock_bound_ns, bound_ns)
        if result.histories:
            self.flag("histories withheld" if bound_ns >= UNKNOWN_NS else "clocks corrected")
            kept = result.histories if bound_ns < UNKNOWN_NS else []
            result = replace(result, histories=kept, clock_bound_ns=bound_ns)
        times = [s for s in result.samples if ONE_WAY in s.metric and s.unit == "ns"]
        names = {n for n in result.histograms if ONE_WAY in n}
        if not times and not names:
            return result
        self.flag("clocks corrected")
        withheld = {s.metric for s in times if bound_ns > SHARE * s.value}
        withheld |= {n for n in names if bound_ns > SHARE * result.latency(n).percentile(50)}
        if not withheld:
            return result
        self.flag("one-way times withheld")
        return replace(
            result,
            samples=[s for s in result.samples if s.metric not in withheld],
            histograms={n: h for n, h in result.histograms.items() if n not in withheld},
        )


def flag_threads(result: Result, cores: int) -> None:
    """Flag the point that this thread measures if more threads than `cores` have counted something.

    A node that counts as a whole has one thread. Threads that count nothing, such as those that
    poll for others, are not seen.
    """
    threads = {(s.node, s.thread) for s in result.samples if s.thread >= 0}
    whole = {s.node for s in result.samples if s.node >= 0} - {node for node, _ in threads}
    point = collected.get()
    if point is not None and len(threads) + len(whole) > cores:
        point.flag(OVERSUBSCRIBED)
