"""The spread of an experiment's figure over its runs: what it draws, drawn for each run alone.

A run is a seed, or a repetition of one. The figure of all runs shows medians. Each of its lines and
bars gets the range of the same line or bar in the figures of single runs. So a derived number, such
as a ratio of two systems, has the range of the ratios within the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .data import Data

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

    The note is empty for a single run. A run of which `draw` makes no figure, because some
    of its points are missing, is left out. Errors of `draw` on the whole table are the caller's.
    """
    figure = draw(Data(table))
    if not hasattr(figure, "axes"):
        return figure, ""
    keys = [table[name].fillna(0) for name in ("seed", "repetition") if name in table]
    runs = [part for _, part in table.groupby(keys)] if keys else []
    if len(runs) < 2:
        return figure, ""
    shapes = [shape for run in runs[:MOST_RUNS] if (shape := _shape_of(draw, run)) is not None]
    count = len(shapes)
    if count < 2:
        return figure, ""
    visible = False
    for number, ax in enumerate(figure.axes):
        visible |= _Spread(ax).add([shape[number] for shape in shapes if number < len(shape)])
    which = f"{count} runs" if len(runs) <= MOST_RUNS else f"the first {count} of {len(runs)} runs"
    note = f"Medians of {which}, which differ by less than {100 * VISIBLE:g} % of each axis."
    if visible:
        level = 100 * (1 - 0.5 ** (count - 1))
        note = f"Bands and bars: least to largest of {which}, a {level:.3g} % interval."
    return figure, note


@dataclass(frozen=True)
class _Panel:
    """The lines and bars of a panel: texts of the legend, and corners as x and y."""

    lines: Sequence[tuple[str, Any]]
    bars: Sequence[Sequence[tuple[float, float]]]


def _shape_of(draw: Callable[[Data], Any], run: pd.DataFrame) -> list[_Panel] | None:
    """Return what `draw` draws of a single run; None if it draws nothing."""
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    try:
        axes = draw(Data(run)).axes
        return [_Panel([*map(_line, ax.lines)], [*map(_ends, _bars(ax))]) for ax in axes]
    except Exception:  # the figure of all runs shows errors; a single run may lack points
        return None
    finally:
        for number in set(plt.get_fignums()).difference(before):
            plt.close(number)


def _line(line: Any) -> tuple[str, Any]:
    return str(line.get_label()), line.get_xydata().astype(float)


def _bars(ax: Any) -> list[Any]:
    from matplotlib.container import BarContainer

    return [each for each in ax.containers if isinstance(each, BarContainer)]


def _ends(bars: Any) -> list[tuple[float, float]]:
    """Return the middle and the end of each bar, in the order of the axes."""
    if bars.orientation == "horizontal":
        return [(b.get_x() + b.get_width(), b.get_y() + b.get_height() / 2) for b in bars]
    return [(b.get_x() + b.get_width() / 2, b.get_y() + b.get_height()) for b in bars]


class _Spread:
    """The spread of one panel."""

    def __init__(self, ax: Any) -> None:
        self.ax = ax
        self.highest: list[float] = []

    def add(self, panels: Sequence[_Panel]) -> bool:
        """Draw the spread of the panel's lines and bars; return whether one is visible."""
        lines, bars = list(self.ax.lines), _bars(self.ax)
        left_right, (bottom, top) = self.ax.get_xlim(), self.ax.get_ylim()
        for place, line in enumerate(lines):
            label, points = _line(line)
            others = [p.lines[place] for p in panels if len(p.lines) == len(lines)]
            if len(points) and not label.startswith("paper"):
                self.line(line, points, [at for name, at in others if name == label])
        for place, each in enumerate(bars):
            ends = np.array(_ends(each), dtype=float)
            of_runs = [p.bars[place] for p in panels if len(p.bars) == len(bars)]
            same = [np.array(found) for found in of_runs if len(found) == len(ends)]
            self.points(ends, same, "black")
        self.ax.set_xlim(left_right)
        if self.highest and top > bottom and (most := max(self.highest)) > top:
            top = most + 0.03 * (most - bottom)
        self.ax.set_ylim(bottom, top)
        return bool(self.highest)

    def line(self, line: Any, points: Array, others: Sequence[Array]) -> None:
        """Draw a band around a line; bars where the points are not joined, or move along x."""
        if all(len(other) == len(points) for other in others):
            moves = any(not np.array_equal(other[:, 0], points[:, 0]) for other in others)
        else:  # a run lacks some points
            others = [_at(points[:, 0], other) for other in others]
            moves = False
        if line.get_linestyle() == "None" or moves or len(points) < 2:
            self.points(points, others, line.get_color())
            return
        low, high = _range(points[:, 1], [other[:, 1] for other in others])
        if self.is_visible(low, high, 1):
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
            self.highest.append(float(np.nanmax(high)))

    def points(self, points: Array, others: Sequence[Array], color: str) -> None:
        """Draw a bar from the least to the largest of each point, along each axis that differs."""
        for axis, name in ((1, "yerr"), (0, "xerr")):
            low, high = _range(points[:, axis], [other[:, axis] for other in others])
            if not self.is_visible(low, high, axis):
                continue
            error = np.array([points[:, axis] - low, high - points[:, axis]])
            style = {"ecolor": color, "elinewidth": 0.9, "capsize": 1.8, "zorder": 3.5}
            self.ax.errorbar(*points.T, **{name: error}, fmt="none", **style)
            self.highest.append(float(np.nanmax(high if axis else points[:, 1])))
            for text in self.ax.texts:  # a number at the end of a bar goes to the end of the range
                for place in np.flatnonzero([_is_at(text, point) for point in points]):
                    text.xy = (high[place], text.xy[1]) if axis == 0 else (text.xy[0], high[place])

    def is_visible(self, low: Array, high: Array, axis: int) -> bool:
        """Return whether a range is seen at the size of the axes."""
        ends = np.tile([self.ax.get_xlim()[0], self.ax.get_ylim()[0]], (2, len(low), 1))
        ends[0, :, axis], ends[1, :, axis] = low, high
        with np.errstate(all="ignore"):
            seen = self.ax.transData.transform(ends.reshape(-1, 2))
            places = self.ax.transAxes.inverted().transform(seen)[:, axis].reshape(2, -1)
        return bool(np.nanmax(np.abs(places[1] - places[0])) > VISIBLE)


def _is_at(text: Any, point: Array) -> bool:
    return hasattr(text, "xy") and np.allclose(text.xy, point)


def _at(xs: Array, points: Array) -> Array:
    """Return the points of a line at these places; NaN where it has none."""
    known = {float(x): float(y) for x, y in points}
    return np.array([(x, known.get(float(x), np.nan)) for x in xs])


def _range(middle: Array, others: Sequence[Array]) -> tuple[Array, Array]:
    """Return the least and the largest value at each place, of the runs and their median."""
    every = np.array([middle, *others], dtype=float)
    return np.nanmin(every, axis=0), np.nanmax(every, axis=0)
