"""Names of lines that lie on each other, written beside them where nothing else is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any

__all__ = ["RING", "RING_WIDER", "SUM", "name_coinciding", "series_of"]

RING = "ring"
"""Group of the lines that only mark points of other lines."""

SUM = "sum"
"""Group of the lines whose numbers are sums over all runs: these have no spread."""

RING_WIDER = 4.0
"""Difference of the sizes of a ring and of the marker in it, in points."""

NEAR = 0.012
"""Lines coincide where they are closer than this share of the height of the axes."""

GAPS = (3.0, 6.0, 9.0, 13.0, 18.0, 24.0, 32.0, 42.0)
"""Distances of a name from its line, in points; a leader bridges all but the first."""

SIDES = (*product((1, -1), (0, 0.5, -0.5, 1, -1)), (0, 1), (0, -1))
"""Places of a name above, below and beside a point, in the order of preference: up and right."""


def series_of(ax: Any) -> list[Any]:
    """Return the lines that are series of ours: neither the paper's, nor marks of other lines."""
    return [
        line
        for line in ax.lines
        if not str(line.get_label()).startswith(("_", "paper")) and line.get_gid() != RING
    ]


def name_coinciding(ax: Any) -> None:
    """Name the series of lines that lie on each other; the layout of the figure must be final.

    A name covers no line, no marker and no text. Where there is no such place, the legend suffices.
    """
    lines = [line for line in series_of(ax) if len(line.get_xdata()) > 1]
    places = {line: _in_axes(ax, line) for line in lines}
    groups: list[list[Any]] = []
    for line in lines:
        for group in groups:
            if all(_coincide(places[line], places[other]) for other in group):
                group.append(line)
                break
        else:
            groups.append([line])
    for group in groups:
        if len(group) > 1:
            _name(ax, group)


def _in_axes(ax: Any, line: Any) -> dict[float, float]:
    """Return the points of a line by x, both as shares of the axes."""
    points = ax.transData.transform(line.get_xydata().astype(float))
    found = ax.transAxes.inverted().transform(points)
    return {round(float(x), 6): float(y) for x, y in found}


def _coincide(a: dict[float, float], b: dict[float, float]) -> bool:
    both = a.keys() & b.keys()
    near = sum(abs(a[x] - b[x]) < NEAR for x in both)
    return len(both) >= max(2, 0.6 * max(len(a), len(b))) and near >= 0.8 * len(both)


def _name(ax: Any, group: Sequence[Any]) -> None:
    """Write the names of a group of lines at the nearest free place."""
    from matplotlib.text import Text

    names = [str(line.get_label()) for line in group]
    text = ax.annotate(
        "",
        (0, 0),
        xycoords="axes fraction",
        xytext=(0, 0),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=6.5,
        color="0.25",
        parse_math=False,
        zorder=6,
        arrowprops={"arrowstyle": "-", "color": "0.25", "linewidth": 0.5, "shrinkA": 0},
    )
    text.set_in_layout(False)
    anchors = [p for p in _points(group[0]) if ax.bbox.padded(-1).contains(*p)]
    drawn = list(_drawn(ax, ax.lines, [t for t in ax.texts if t is not text]))
    others = list(_drawn(ax, [line for line in ax.lines if line not in group], []))
    point = ax.figure.dpi / 72
    for told in (", ".join(names), "\n".join(names)):
        text.set_text(told)
        box = Text.get_window_extent(text)  # without the leader
        half = (box.width / 2 + point, box.height / 2 + point)
        found = _free_place(ax, anchors, half, drawn, others)
        if found is not None:
            anchor, (x, y), gap = found
            text.xy = tuple(ax.transAxes.inverted().transform(anchor))
            text.set_position(((x - anchor[0]) / point, (y - anchor[1]) / point))
            text.arrow_patch.set_visible(gap > GAPS[0])
            return
    text.remove()


def _points(line: Any) -> Any:
    """Return points along a line, a pixel apart, in pixels; only its own points if it is none."""
    import numpy as np

    own = line.get_transform().transform(line.get_xydata().astype(float))
    own = own[np.isfinite(own).all(axis=1)]
    if line.get_linestyle() == "None" or len(own) < 2:
        return own
    return np.vstack([_between(a, b) for a, b in pairwise(own)])


def _between(a: Any, b: Any) -> Any:
    import numpy as np

    return np.linspace(a, b, min(5000, max(2, int(np.hypot(*(b - a))))))


def _drawn(ax: Any, lines: Sequence[Any], texts: Sequence[Any]) -> Iterator[tuple[Any, float]]:
    """Return points of all that a name must not cover, each with half of its width, in pixels."""
    import numpy as np

    point = ax.figure.dpi / 72
    for line in lines:
        yield _points(line), line.get_linewidth() / 2 * point
        if line.get_marker() not in ("", "None", None):
            own = line.get_transform().transform(line.get_xydata().astype(float))
            yield own, line.get_markersize() / 2 * point
    for bars in ax.collections:
        for segment in getattr(bars, "get_segments", list)():  # error bars
            ends = bars.get_transform().transform(segment)
            if len(ends) < 2 or not np.isfinite(ends).all():
                continue  # of a point without a value
            yield np.vstack([_between(a, b) for a, b in pairwise(ends)]), point
    for text in texts:
        box = text.get_window_extent()  # with the arrow of a bound
        across = product(np.linspace(box.x0, box.x1, 20), np.linspace(box.y0, box.y1, 5))
        yield np.array(list(across)), 2 * point


def _free_place(
    ax: Any,
    anchors: Sequence[Any],
    half: tuple[float, float],
    drawn: Sequence[tuple[Any, float]],
    others: Sequence[tuple[Any, float]],
) -> tuple[Any, tuple[float, float], float] | None:
    """Return a point of the line, the middle of a box near it that is free, and their distance."""
    import numpy as np

    point = ax.figure.dpi / 72
    step = max(1, len(anchors) // 40)
    middle = len(anchors) / 2
    chosen = sorted(range(0, len(anchors), step), key=lambda n: abs(n - middle))
    for gap, n in product(GAPS, chosen):
        anchor = anchors[n]
        for up, right in SIDES:
            x = anchor[0] + right * (half[0] + gap * point * (0.5 if up else 1))
            y = anchor[1] + up * (half[1] + gap * point)
            corner = np.array([x, y]) - half, np.array([x, y]) + half
            if not (ax.bbox.contains(*corner[0]) and ax.bbox.contains(*corner[1])):
                continue
            if any(_covers(*corner, *each) for each in drawn):
                continue
            leader = _between(anchor, np.clip(anchor, *corner))
            if any(_meets(leader, *each) for each in others):
                continue
            return anchor, (x, y), gap
    return None


def _covers(low: Any, high: Any, points: Any, width: float) -> bool:
    return bool(((points > low - width) & (points < high + width)).all(axis=1).any())


def _meets(leader: Any, points: Any, width: float) -> bool:
    import numpy as np

    near = points[np.abs(points - leader[0]).max(axis=1) < 200]
    apart = np.abs(near[:, None, :] - leader[None, :, :]).max(axis=2)
    return bool((apart < width + 1).any())
