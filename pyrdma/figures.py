"""Draw figures in one house style, readable in grey and by colour-blind people.

Series differ by colour, marker and line style at once. The paper's numbers are drawn over them with
hollow black markers, named in the legend. A figure has the width of a column of a paper, or of its
page if it has several panels. `save` puts legends beside the data and writes into the file what was
measured.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import figure_layout
from .arguments import Between, FileName, checked, shown
from .data import OVERSUBSCRIBED, Data
from .errors import InvalidArgument
from .figure_names import RING, RING_WIDER
from .files import write_atomically
from .trust import distrusted
from .units import convert

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .claims import Claim

__all__ = [
    "COLUMN",
    "PAGE",
    "STYLE",
    "bars",
    "halo",
    "legend_below",
    "line",
    "new",
    "overlay",
    "paper_says",
    "save",
    "style_of",
    "with_paper",
    "without_paper",
]

STYLE = Path(__file__).with_name("styles") / "paper.mplstyle"
"""The style file of all figures, for `matplotlib.pyplot.style.use`."""

COLUMN = 3.33
"""Width of a column of a paper with two, in inches: that of a figure with one panel."""

PAGE = 7.0
"""Width of both columns, in inches: that of a figure with several panels side by side."""

# Paul Tol's "high-contrast" and "bright" hues, ordered so that lightness alternates.
_COLOURS = ("#004488", "#BB5566", "#228833", "#DDAA33", "#66CCEE", "#AA3377", "#777777", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    ":",
    (0, (5, 1)),
    (0, (3, 1, 1, 1)),
    (0, (1, 1)),
    (0, (7, 2, 1, 2)),
)
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
_PAPER_MARKERS = ("o", "s", "^", "D", "v", "p", "h", "*")

Panels = Annotated[int, Between(1, 64)]
Number = Annotated[int, Between(0, 10**6)]
Inches = Annotated[float, Between(0.5, 100)]

_paper: ContextVar[bool] = ContextVar("paper", default=True)


@contextmanager
def closing() -> Iterator[None]:
    """Close the figures that the block makes, since pyplot keeps all others open."""
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    try:
        yield
    finally:
        for number in set(plt.get_fignums()).difference(before):
            plt.close(number)


@contextmanager
def without_paper() -> Iterator[None]:
    """Leave the paper's numbers out of all that is drawn and saved inside the block."""
    token = _paper.set(False)
    try:
        yield
    finally:
        _paper.reset(token)


def with_paper() -> bool:
    """Return whether the paper's numbers belong into the figure that is drawn now."""
    return _paper.get()


@checked
def new(
    rows: Panels = 1,
    columns: Panels = 1,
    *,
    wide: bool = False,
    height: Inches | None = None,
    **options: Any,
) -> tuple[Figure, Any]:
    """Return a figure and its axes (one, or an array) in the house style.

    Parameters
    ----------
    wide
        Give a figure with a single column of panels the width of the page, too.
    height
        Height in inches, without the legends below; default: 2.2 for each row of panels.
    options
        See `matplotlib.pyplot.subplots`.
    """
    plt = _pyplot()
    plt.style.use(STYLE)
    high = rows * plt.rcParams["figure.figsize"][1] if height is None else height
    options.setdefault("figsize", (PAGE if wide or columns > 1 else COLUMN, high))
    figure: Figure
    figure, axes = plt.subplots(rows, columns, **options)
    return figure, axes


def _pyplot() -> Any:
    """Import Matplotlib, which reads its settings from the working folder."""
    settings = Path("matplotlibrc")
    if "matplotlib" not in sys.modules and (reason := distrusted(settings)):
        raise InvalidArgument(
            f"{reason}; Matplotlib would take its settings from there, which can run code: "
            f"remove ./{settings}, or work in another folder"
        )
    import matplotlib.pyplot as plt

    return plt


@checked
def style_of(number: Number) -> dict[str, Any]:
    """Return colour, marker and line style of series `number`."""
    n = number % len(_COLOURS)
    return {"color": _COLOURS[n], "marker": _MARKERS[n], "linestyle": _LINES[n]}


@checked
def line(
    ax: Axes,
    data: Data,
    metric: str,
    over: str,
    *,
    by: str | None = None,
    unit: str | None = None,
    names: Mapping[Any, str] | None = None,
    label: str | None = None,
    first: Number = 0,
    **where: Any,
) -> None:
    """Draw `metric` against the parameter `over`, with one line for each value of `by`.

    Several seeds or repetitions of a point appear as their median; a run adds a band from the least
    to the largest (`pyrdma.figure_spread`). A ring marks a point whose threads did not all have a
    core (`pyrdma.conditions`).

    Parameters
    ----------
    unit
        Unit of the axis; default: the recorded one.
    names
        Legend text by value of `by`.
    label
        Legend text of a single line.
    first
        Number of the first style, to continue after another call.
    """
    rows = data.select(metric, **where)
    groups = [None] if by is None else _column(rows, "by", by).unique().tolist()
    for number, group in enumerate(groups):
        chosen = where if by is None else {**where, by: group}
        series = data.series(metric, over, unit, **chosen)
        text = (label or metric) if by is None else (names or {}).get(group, str(group))
        style = style_of(first + number)
        ax.plot(series.index.to_list(), series.to_list(), label=text, **style)
        _mark_oversubscribed(ax, data.select(metric, **chosen), over, series)


def _mark_oversubscribed(ax: Axes, rows: pd.DataFrame, over: str, series: pd.Series) -> None:
    if "flags" not in rows.columns:
        return
    places = sorted(set(rows[rows["flags"].str.contains(OVERSUBSCRIBED)][over]))
    if places:
        size = ax.lines[-1].get_markersize() + RING_WIDER
        values = [series[place] for place in places]
        (ring,) = ax.plot(places, values, "o", color="0.4", markerfacecolor="none", zorder=4)
        label = _once(ax, "more busy threads than cores")
        ring.set(markersize=size, label=label, gid=RING)


def _once(ax: Axes, label: str) -> str:
    """Return the label if the axes do not have it yet, else none."""
    return "_nolegend_" if label in ax.get_legend_handles_labels()[1] else label


def _column(rows: pd.DataFrame, parameter: str, name: str) -> pd.Series:
    if name not in rows.columns:
        raise InvalidArgument(f"{parameter} is {shown(name)}; give a parameter of the results")
    return rows[name]


@checked
def bars(
    ax: Axes,
    names: Sequence[str],
    groups: Mapping[str, Sequence[float]],
    *,
    stacked: bool = False,
    values: str | None = None,
    log: bool = False,
) -> None:
    """Draw bars at `names`, one set per group, beside each other or stacked.

    Groups differ by colour and hatch. `values` is a format as ``"{:.1f}"`` that writes each
    bar's height above it. With `log` the y axis is logarithmic and each value is a dot, since the
    length of a bar would mean nothing there.
    """
    import numpy as np

    positions = np.arange(len(names), dtype=float)
    width = 0.8 if stacked else 0.8 / max(1, len(groups))
    bottom = np.zeros(len(names))
    for number, (group, heights) in enumerate(groups.items()):
        style = style_of(number)
        shift = 0.0 if stacked else (number - (len(groups) - 1) / 2) * width
        if log:
            ax.plot(positions + shift, heights, **{**style, "linestyle": "none"}, label=group)
            for x, height in zip(positions + shift, heights, strict=True):
                if values:
                    at: dict[str, Any] = {
                        "xytext": (5, 0),
                        "textcoords": "offset points",
                        "va": "center",
                    }
                    ax.annotate(values.format(height), (x, height), fontsize=7, **at)
            continue
        drawn = ax.bar(
            positions + shift,
            heights,
            width * 0.95,
            bottom=bottom if stacked else None,
            color=style["color"],
            hatch=_HATCHES[number % len(_HATCHES)],
            edgecolor="white",
            linewidth=0.5,
            label=group,
        )
        if values:
            ax.bar_label(drawn, fmt=values, padding=1, fontsize=7)
        if stacked:
            bottom = bottom + np.asarray(heights, dtype=float)
    ax.set_xticks(positions, list(names))
    ax.grid(visible=False, axis="x")
    if log:
        ax.set_yscale("log")
        ax.set_xlim(-0.5, len(names) - 0.5)


@checked
def overlay(
    ax: Axes,
    numbers: Sequence[tuple[Claim, Any]],
    *,
    unit: str | None = None,
    names: Mapping[str, str] | None = None,
    first: Number = 0,
) -> None:
    """Draw the paper's numbers: pairs of a claim and its place on the x axis.

    A range is drawn as a bar between its ends, as the legend says, and a bound with an arrow.
    Claims of one series share a marker and an entry of the legend. Inside `without_paper` nothing
    is drawn.
    """
    if not _paper.get():
        return
    series: list[str] = []
    for claim, _ in numbers:
        if claim.series not in series:
            series.append(claim.series)
    for claim, x in numbers:
        middle = claim.number
        if middle is None:
            continue
        factor = 1.0 if unit is None else convert(1.0, claim.unit, unit)
        index = series.index(claim.series)
        name = (names or {}).get(claim.series, claim.series)
        error = None
        if isinstance(claim.value, list):
            error = (max(claim.value) - min(claim.value)) / 2 * factor
            name += ", range"
        mark, *_ = ax.errorbar(
            [x],
            [middle * factor],
            yerr=error,
            fmt=_PAPER_MARKERS[(first + index) % len(_PAPER_MARKERS)],
            color="black",
            markerfacecolor="none",
            markersize=6.5,
            markeredgewidth=1.1,
            capsize=3,
            linestyle="none",
            label=f"paper: {name}",
            zorder=5,
        )
        mark.set_path_effects(halo())
        if claim.bound:
            tip = -14 if claim.bound == "upper" else 14
            ax.annotate(
                "",
                xy=(x, middle * factor),
                xytext=(0, tip),
                textcoords="offset points",
                arrowprops={"arrowstyle": "<-", "color": "black", "linewidth": 1.0},
            )
    _drop_repeated_labels(ax)


@checked
def paper_says(ax: Axes, text: str) -> None:
    """Write a statement of the paper that has no number, such as a rank, above a panel.

    Inside `without_paper` nothing is written.
    """
    if _paper.get():
        ax.set_title("\n".join(t for t in (ax.get_title(), f"paper: {text}") if t))


def halo() -> list[Any]:
    """Return the white rim of the paper's markers, which keeps them visible on dark bars."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.8, foreground="white")]


def _drop_repeated_labels(ax: Axes) -> None:
    seen: set[str] = set()
    for container in ax.containers:
        label = str(container.get_label())
        if label in seen:
            container.set_label("_nolegend_")
        seen.add(label)


@checked
def legend_below(panels: Sequence[Axes], title: str = "") -> None:
    """Put one legend below the figure, with every series of some of its panels once."""
    if not panels:
        raise InvalidArgument("panels is empty; give the axes whose series the legend names")
    found: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure_layout.below(panels[0].figure, list(found.values()), list(found), title)


@checked
def save(
    figure: Figure,
    folder: Path,
    name: FileName,
    *,
    title: str = "",
    about: str = "",
    caption: bool = False,
    note: str = "",
    points: Sequence[str] = (),
) -> list[Path]:
    """Write a figure as PNG and PDF, atomically, and close it. Equal input gives equal bytes.

    Parameters
    ----------
    title, about
        Metadata of the files: of the PNG ``Title`` and ``Description``, of the PDF ``Title`` and
        ``Subject``.
    caption
        Write `about` below the figure, too.
    note
        A line below the figure in any case.
    points
        Names of the stored points that it shows: of the PNG ``Points``.
    """
    from matplotlib.transforms import Bbox

    plt = _pyplot()
    if not _paper.get():
        figure_layout.remove(figure, "paper")
    figure_layout.finish(figure)
    below = " ".join(text for text in (note, about if caption else "") if text)
    low = figure_layout.with_line_below(figure, below) if below else 0.0
    width, height = figure.get_size_inches()
    box = Bbox([[0, -low], [width, height]])
    told = {"Title": title, "Description": about, "Points": " ".join(points)}
    png = {"Software": None, **{key: text for key, text in told.items() if text}}
    pdf = {"CreationDate": None, "Title": title or None, "Subject": about or None}
    written = []
    for suffix, metadata in (("png", png), ("pdf", pdf)):
        stream = io.BytesIO()
        figure.savefig(stream, format=suffix, metadata=metadata, bbox_inches=box)
        path = folder / f"{name}.{suffix}"
        write_atomically(path, stream.getvalue())
        written.append(path)
    plt.close(figure)
    return written
