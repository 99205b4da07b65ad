"""The spread of an experiment's figure over its runs: what it draws, drawn for each run alone.

A run is a seed, or a repetition of one. The figure of all runs shows medians. Each of its lines and
bars gets the range of the same line or bar in the figures of single runs. So a derived number, such
as a ratio of two systems, has the range of the ratios within the runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .data import Data
from .figure_names import RING, SUM

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_RUNS", "drawn"]

Array = Any
"""An array of NumPy, whose shape the types do not tell."""

MOST_RUNS = 30
"""Runs whose figures are drawn; the note below the figure says if there are more."""

VISIBLE = 0.01
"""Least spread that is drawn, as a share of the height or width of the axes."""


def drawn(draw: Callable[[Data], Any], table: pd.DataFrame) -> tuple[Any, str]:
    """Return the figure that `draw` makes of a table, with its spread, and a note that names it.

    The note is empty for a single run. A run is left out if `draw` makes no figure of it, or if it
    lacks the least or the largest value of a parameter: many figures choose that one. Errors of
    `draw` on the whole table are the caller's.
    """
    figure = draw(Data(table))
    if not hasattr(figure, "axes"):
        return figure, ""
    keys = [table[name].fillna(0) for name in ("seed", "repetition") if name in table]
    runs = [part for _, part in table.groupby(keys)] if keys else []
    if len(runs) < 2:
        return figure, ""
    numbers = table[Data(table).parameters].select_dtypes("number")
    ends = numbers.agg(["min", "max"])
    alike = [run for run in runs if run[numbers.columns].agg(["min", "max"]).equals(ends)]
    shapes = [shape for run in alike[:MOST_RUNS] if (shape := _shape_of(draw, run)) is not None]
    spreads = [
        _Spread(ax, [shape[number] for shape in shapes if number < len(shape)])
        for number, ax in enumerate(figure.axes)
    ]
    for spread in spreads:
        spread.draw()
    values = [count for spread in spreads for count in spread.values]
    drew = {what for spread in spreads for what in spread.drew}
    if not drew and not all(spread.has_compared_all for spread in spreads):
        return figure, ""
    return figure, _note(values, drew, len(alike))


def _note(values: Sequence[int], drew: Collection[str], runs: int) -> str:
    """Return the line about the spread.

    `values` has the number of values at each place, and `drew` what shows the spread: bands, bars.

    From the least to the largest of n values is an interval of the median with a probability of
    1 - 1/2^(n - 1).
    """
    several = [count for count in values if count > 1]
    if not several:
        return ""
    least, most = min(several), max(several)
    count = f"{most}" if least == most else f"{least} to {most}"
    among = "" if runs <= MOST_RUNS else f" (of {runs}, the first {MOST_RUNS})"
    if not drew:
        share = f"{100 * VISIBLE:g} %"
        return f"Medians; {count} runs{among} differ by less than {share} of each axis."
    level = min(99.9, math.floor(1000 * (1 - 0.5 ** (least - 1))) / 10)
    how = "a" if least == most else "at least a"
    others = "" if len(several) == len(values) else " Some places have a single run."
    what = " and ".join(sorted(drew)).capitalize()
    return (
        f"{what}: least to largest of {count} runs{among}, {how} {level:g} % interval of "
        f"the median.{others}"
    )


@dataclass(frozen=True)
class _Panel:
    """The points of a panel's lines, and the ends of its bars."""

    lines: Mapping[str, Sequence[Array]]
    bars: Sequence[Array]


def _shape_of(draw: Callable[[Data], Any], run: pd.DataFrame) -> list[_Panel] | None:
    """Return what `draw` draws of a single run; None if it draws nothing."""
    from . import figures  # it loads Matplotlib

    try:
        with figures.closing():
            return [
                _Panel(
                    {name: [*map(_points, lines)] for name, lines in _lines(ax).items()},
                    [*map(_ends, _bars(ax))],
                )
                for ax in draw(Data(run)).axes
            ]
    except Exception:  # the figure of all runs shows errors; a single run may lack points
        return None


def _lines(ax: Any) -> dict[str, list[Any]]:
    """Return the lines of measured numbers, by their name in the legend; "" for those without one.

    The paper's numbers, the marks of busy threads, sums over all runs and the ends of error bars
    are none of them.
    """
    from matplotlib.container import ErrorbarContainer  # figures.new has seen to its settings

    apart: set[Any] = set()
    for each in ax.containers:
        if isinstance(each, ErrorbarContainer):
            line, caps, _ = each.lines
            apart.update(caps)
            apart.update([line] if str(each.get_label()).startswith("paper") else [])
    found: dict[str, list[Any]] = {}
    for line in ax.lines:
        label = str(line.get_label())
        if not (label.startswith("paper") or line.get_gid() in (RING, SUM) or line in apart):
            found.setdefault("" if label.startswith("_") else label, []).append(line)
    return found


def _points(line: Any) -> Array:
    return line.get_xydata().astype(float)


def _bars(ax: Any) -> list[Any]:
    from matplotlib.container import BarContainer

    return [each for each in ax.containers if isinstance(each, BarContainer)]


def _ends(bars: Any) -> Array:
    """Return the middle of the end of each bar."""
    if bars.orientation == "horizontal":
        ends = [(b.get_x() + b.get_width(), b.get_y() + b.get_height() / 2) for b in bars]
    else:
        ends = [(b.get_x() + b.get_width() / 2, b.get_y() + b.get_height()) for b in bars]
    return np.array(ends, dtype=float).reshape(-1, 2)


class _Spread:
    """The spread of one panel.

    Attributes
    ----------
    values
        The number of values at each place of each line and bar.
    drew
        What shows the spread: "bands", "bars", or both; empty if none is visible.
    has_compared_all
        Whether each run has drawn all that the panel has.
    """

    def __init__(self, ax: Any, runs: Sequence[_Panel]) -> None:
        self.ax = ax
        self.runs = runs
        self.values: list[int] = []
        self.drew: set[str] = set()
        self.has_compared_all = True
        self._corners: list[Array] = []

    def draw(self) -> None:
        """Draw the spread of the panel's lines and bars."""
        from matplotlib.collections import PathCollection

        named, bars = _lines(self.ax), _bars(self.ax)
        self.has_compared_all = not any(
            [isinstance(each, PathCollection) for each in self.ax.collections]
            + [line.get_gid() == SUM for line in self.ax.lines]
        )
        limits = self.ax.get_xlim(), self.ax.get_ylim()
        for name, lines in named.items():
            of_runs = [run.lines.get(name, ()) for run in self.runs]
            for place, line in enumerate(lines):
                same = [found[place] for found in of_runs if len(found) == len(lines)]
                if len(_points(line)) and same:
                    self._line(line, _points(line), same)
                self.has_compared_all &= len(same) == len(self.runs)
        for place, each in enumerate(bars):
            ends = _ends(each)
            same = [run.bars[place] for run in self.runs if len(run.bars) == len(bars)]
            same = [found for found in same if len(found) == len(ends)]
            if len(ends) and same:
                self._bars(ends, same, "black")
            self.has_compared_all &= len(same) == len(self.runs)
        self._widen(*limits)

    def _line(self, line: Any, points: Array, runs: Sequence[Array]) -> None:
        """Draw a band around a line; bars where the points are not joined, or move along x."""
        in_data = line.get_transform().contains_branch_seperately(self.ax.transData)
        if not all(in_data):
            self._across(line, points, runs, in_data)
            return
        if all(len(run) == len(points) for run in runs):
            moves = any(not np.array_equal(run[:, 0], points[:, 0]) for run in runs)
        else:  # a run lacks some points
            runs = [_at(points[:, 0], run) for run in runs]
            moves = False
        if line.get_linestyle() == "None" or moves or len(points) < 2:
            self._bars(points, runs, line.get_color())
            return
        low, high = self._range(points, runs, 1)
        if self._is_visible(low, high, 1):
            steps = {"steps-post": "post", "steps-pre": "pre", "steps-mid": "mid"}
            self.ax.fill_between(
                points[:, 0],
                low,
                high,
                step=steps.get(line.get_drawstyle()),
                color=line.get_color(),
                alpha=0.2,
                linewidth=0,
                zorder=line.get_zorder() - 0.5,
            )
            self._corners += [np.column_stack([points[:, 0], end]) for end in (low, high)]
            self.drew.add("bands")

    def _across(
        self, line: Any, points: Array, runs: Sequence[Array], in_data: Sequence[bool]
    ) -> None:
        """Draw the range of a line across the whole panel, as of `Axes.axhline`."""
        if not any(in_data):
            return
        axis = 1 if in_data[1] else 0
        (low, *_), (high, *_) = self._range(points[:1], [run[:1] for run in runs], axis)
        if self._is_visible(np.array([low]), np.array([high]), axis):
            span = self.ax.axhspan if axis else self.ax.axvspan
            span(low, high, color=line.get_color(), alpha=0.2, linewidth=0, zorder=0.5)
            ends = np.full((2, 2), np.nan)
            ends[:, axis] = low, high
            self._corners.append(ends)
            self.drew.add("bands")

    def _bars(self, points: Array, runs: Sequence[Array], color: str) -> None:
        """Draw a bar from the least to the largest of each point, along each axis that differs."""
        for axis, name in ((1, "yerr"), (0, "xerr")):
            low, high = self._range(points, runs, axis)
            if not self._is_visible(low, high, axis):
                continue
            known = np.isfinite(points).all(axis=1) & np.isfinite(low) & np.isfinite(high)
            at, low, high = points[known], low[known], high[known]
            error = np.array([at[:, axis] - low, high - at[:, axis]])
            style = {"ecolor": color, "elinewidth": 0.9, "capsize": 1.8, "zorder": 3.5}
            self.ax.errorbar(*at.T, **{name: error}, fmt="none", **style)
            self.drew.add("bars")
            for end in (low, high):
                corner = at.copy()
                corner[:, axis] = end
                self._corners.append(corner)
            for text in self.ax.texts:  # a number at the end of a bar goes to the end of the range
                for place in np.flatnonzero([_is_at(text, point) for point in at]):
                    text.xy = (high[place], text.xy[1]) if axis == 0 else (text.xy[0], high[place])

    def _range(self, middle: Array, runs: Sequence[Array], axis: int) -> tuple[Array, Array]:
        """Return the least and the largest value at each place, of the runs and their median."""
        values = np.array([run[:, axis] for run in runs])
        if axis == 1:
            counts = np.isfinite(values).sum(axis=0)
            self.values += [int(n) for n in counts if n > 0]
        every = np.vstack([middle[:, axis], values])
        return np.fmin.reduce(every), np.fmax.reduce(every)

    def _is_visible(self, low: Array, high: Array, axis: int) -> bool:
        """Return whether a range is seen at the size of the axes."""
        ends = np.tile([self.ax.get_xlim()[0], self.ax.get_ylim()[0]], (2, len(low), 1))
        ends[0, :, axis], ends[1, :, axis] = low, high
        with np.errstate(all="ignore"):
            seen = self.ax.transData.transform(ends.reshape(-1, 2))
            places = self.ax.transAxes.inverted().transform(seen)[:, axis].reshape(2, -1)
            return bool(np.any(np.abs(places[1] - places[0]) > VISIBLE))

    def _widen(self, *limits: tuple[float, float]) -> None:
        """Keep the limits that the figure has, but let them include what was drawn."""
        corners = np.vstack([np.empty((0, 2)), *self._corners])
        for axis, (begin, end) in enumerate(limits):
            is_log = (self.ax.yaxis if axis else self.ax.xaxis).get_scale() == "log"
            found = corners[np.isfinite(corners[:, axis]), axis]
            found = found[found > 0] if is_log else found
            low, high = min(begin, end), max(begin, end)
            if len(found) and found.min() < low:
                low = found.min() / 1.05 if is_log else found.min() - 0.03 * (high - low)
            if len(found) and found.max() > high:
                high = found.max() * 1.05 if is_log else found.max() + 0.03 * (high - low)
            ends = (low, high) if begin <= end else (high, low)
            (self.ax.set_ylim if axis else self.ax.set_xlim)(*ends)


def _is_at(text: Any, point: Array) -> bool:
    """Return whether an annotation belongs to a point in data coordinates."""
    try:
        return text.xycoords == "data" and np.allclose(np.array(text.xy, dtype=float), point)
    except (AttributeError, TypeError, ValueError):  # a plain text, or a name on the axis
        return False


def _at(xs: Array, points: Array) -> Array:
    """Return the points of a line at these places; NaN where it has none."""
    known = {float(x): float(y) for x, y in points}
    return np.array([(x, known.get(float(x), np.nan)) for x in xs])
