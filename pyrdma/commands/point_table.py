"""The points of a run as a table: parameters, numbers, and the paper's where it has some."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrdma import published, results
from pyrdma.claims import Claim
from pyrdma.experiment import Experiment
from pyrdma.published import Spot
from pyrdma.runs import Report, measured
from pyrdma.units import convert

from . import terminal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["lines"]

_MOST_ROWS = 20
_WIDEST = 26  # of a parameter's value
_LARGER = {
    "op/s": ("Mop/s", "Kop/s"),
    "byte/s": ("GB/s", "MB/s", "KB/s"),
    "ns": ("s", "ms", "us"),
    "B": ("GB", "MB", "KB"),
}
"""Larger units than a recorded one, the largest first."""

_MINOR = ("ops", "bytes", "elapsed", "received", "receive_rate")
_RANK_OF_MINOR = 6
_PERCENTILES = ("_p50", "_p90", "_p99", "_p999", "_p9999")
_MINOR_ENDS = ("_p90", "_p999", "_p9999", "_mean", "_max", "_count")


@dataclass(frozen=True)
class _Column:
    """A column with a cell for each row; numbers stand at its right."""

    title: str
    unit: str
    cells: Sequence[str]
    left: bool = False

    @property
    def width(self) -> int:
        return max(len(text) for text in (self.title, self.unit, *self.cells))

    def lines(self) -> list[str]:
        """Return the head's two lines, and the cells, all of one width."""
        side = "<" if self.left else ">"
        return [f"{text:{side}{self.width}}" for text in (self.title, self.unit, *self.cells)]


def lines(report: Report, experiment: Experiment) -> Iterator[str]:
    """Yield a table of the points that a run measured or found stored, at most `_MOST_ROWS`.

    A number is the median of the point's seeds and repetitions. If there are too many points, those
    that failed and those of which the paper has a number come first. As many metrics are shown as
    the terminal has room for.
    """
    stored = measured(report)
    if stored:
        yield from _Points(report, experiment, results.table(stored)).lines()


class _Points:
    def __init__(self, report: Report, experiment: Experiment, frame: pd.DataFrame) -> None:
        totals = frame[frame["scope"] == "total"]
        self.report = report
        self.experiment = experiment
        parameters = published.parameters_of(experiment, frame)
        self.names = [*parameters, *(["host"] if frame["host"].any() else [])]
        self.units: dict[str, str] = dict(zip(totals["metric"], totals["unit"], strict=True))
        self.numbers: dict[Spot, dict[str, list[float]]] = {}
        found = zip(totals["metric"], totals["value"], strict=True)
        for spot, (metric, value) in zip(published.spots(totals, self.names), found, strict=True):
            self.numbers.setdefault(spot, {}).setdefault(metric, []).append(float(value))
        self.lacking: dict[Spot, str] = {}
        for task in report.outcome.tasks:
            for word, keys in (
                ("failed", report.outcome.failed),
                ("skipped", report.outcome.skipped),
            ):
                if task.key in keys:
                    params = {**task.point.params, "host": task.host}
                    spot = tuple(params.get(name) for name in self.names)
                    self.lacking[spot] = word
                    self.numbers.setdefault(spot, {})
        axes = [i for i, name in enumerate(self.names) if name in experiment.axes]
        sweep = [task.point.params for task in report.outcome.tasks]
        order = {tuple(p[self.names[i]] for i in axes): n for n, p in reversed([*enumerate(sweep)])}
        place = {spot: order.get(tuple(spot[i] for i in axes), 0) for spot in self.numbers}
        self.numbers = {spot: self.numbers[spot] for spot in sorted(place, key=place.__getitem__)}
        # A host that measured apart has the paper's numbers of the same point.
        self.papers: dict[tuple[Spot, str], list[Claim]] = {}
        if _is_papers(experiment, frame):
            self.papers = published.by_point(experiment, frame)
        self.depth = len(parameters)

    def paper(self, spot: Spot, metric: str) -> list[Claim]:
        """Return the claims on a number; those of this experiment if there are some."""
        found = self.papers.get((spot[: self.depth], metric), [])
        return [c for c in found if c.experiment == self.experiment.id] or found

    def lines(self) -> Iterator[str]:
        """Yield the table, and what it leaves out."""
        rows = self.rows()
        fixed = [
            i for i in range(len(self.names)) if len({s[i] for s in self.numbers}) == 1 < len(rows)
        ]
        columns = [
            _Column(name, "", [_text(spot[i]) for spot in rows], left=_is_text(self.numbers, i))
            for i, name in enumerate(self.names)
            if i not in fixed
        ]
        if self.lacking:
            columns.append(_Column("", "", [self.lacking.get(spot, "") for spot in rows]))
        shown = self.fitting(rows, columns)
        metrics = self.ranked()
        columns += [c for metric in metrics if metric in shown for c in self.of(metric, rows)]
        yield ""
        for parts in zip(*(column.lines() for column in columns), strict=True):
            yield f"  {'  '.join(parts)}".rstrip()
        if len(self.numbers) > len(rows):
            more = len(self.numbers) - len(rows)
            yield f"  and {more} more; all of them: rd.load({str(self.report.folder)!r})"
        if fixed:
            at = next(iter(self.numbers))
            yield from terminal.listed(
                "  at each point:", [f"{self.names[i]}={_text(at[i])}" for i in fixed]
            )
        counts = [len(found) for metrics in self.numbers.values() for found in metrics.values()]
        if max(counts) > 1:
            yield f"  each number is the median of up to {max(counts)} measurements"
        if hidden := [metric for metric in metrics if metric not in shown]:
            yield from terminal.listed("  also measured:", hidden)

    def rows(self) -> list[Spot]:
        """Return the points to show, in the order of the sweep."""
        claimed = {spot for spot, _ in self.papers}

        def importance(spot: Spot) -> int:
            return 0 if spot in self.lacking else 1 if spot[: self.depth] in claimed else 2

        chosen = set(sorted(self.numbers, key=importance)[:_MOST_ROWS])
        return [spot for spot in self.numbers if spot in chosen]

    def ranked(self) -> list[str]:
        """Return the metrics in the order of display."""
        return sorted(self.units, key=lambda metric: _rank(metric, self.units[metric]))

    def fitting(self, rows: Sequence[Spot], columns: Sequence[_Column]) -> list[str]:
        """Return the metrics for which a line has room; the paper's first, and at least one."""
        claimed = {metric for _, metric in self.papers}
        wanted = [
            metric
            for metric in self.ranked()
            if metric in claimed or _rank(metric, self.units[metric]) < _RANK_OF_MINOR
        ] or self.ranked()
        room = terminal.width() - sum(column.width + 2 for column in columns)
        shown: list[str] = []
        for metric in sorted(wanted, key=lambda metric: metric not in claimed):
            room -= sum(column.width + 2 for column in self.of(metric, rows))
            if shown and room < 0:
                break
            shown.append(metric)
        return shown

    def of(self, metric: str, rows: Sequence[Spot]) -> list[_Column]:
        """Return the column of a metric, and the one of the paper's numbers if it has some."""
        recorded = self.units[metric]
        medians = {
            spot: statistics.median(metrics[metric])
            for spot, metrics in self.numbers.items()
            if metric in metrics
        }
        unit = _readable(recorded, medians.values())
        cells = [
            terminal.cell(convert(medians[spot], recorded, unit)) if spot in medians else ""
            for spot in rows
        ]
        title, _, percentile = metric.rpartition("_")
        columns = [
            _Column(title, f"{percentile} {unit}", cells)
            if metric.endswith(_PERCENTILES)
            else _Column(metric, unit, cells)
        ]
        if any(of == metric for _, of in self.papers):
            stated = [self.paper(spot, metric) for spot in rows]
            texts = [
                ", ".join(dict.fromkeys(terminal.published(c, unit) for c in s)) for s in stated
            ]
            columns.append(_Column("paper", unit, texts))
        return columns


def _rank(metric: str, unit: str) -> int:
    """Return the place of a metric: rates, medians, 99th percentiles, bandwidths, times, others."""
    if metric in _MINOR or metric.endswith(_MINOR_ENDS):
        return _RANK_OF_MINOR
    if metric.endswith("_p50"):
        return 1
    if metric.endswith("_p99"):
        return 2
    return {"op/s": 0, "byte/s": 3, "ns": 4}.get(unit, 5)


def _is_papers(experiment: Experiment, frame: pd.DataFrame) -> bool:
    """Whether the points were measured with the profiles that the experiment declares."""
    axis = experiment.axes.get("profile")
    declared = {experiment.profile, *((*axis.quick, *axis.full) if axis else ())}
    return not frame["overrides"].any() and set(frame["profile"]) <= declared


def _is_text(spots: dict[Spot, Any], index: int) -> bool:
    return any(isinstance(spot[index], str) for spot in spots)


def _readable(unit: str, values: Collection[float]) -> str:
    """Return the largest unit in which the median of the values is at least 0.1."""
    middle = statistics.median(abs(value) for value in values)
    for larger in _LARGER.get(unit, ()):
        if convert(middle, unit, larger) >= 0.1:
            return larger
    return unit


def _text(value: Any) -> str:
    text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return terminal.shortened(text, _WIDEST)
