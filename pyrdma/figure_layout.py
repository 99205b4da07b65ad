"""The last steps of a figure: legends beside the data, room for all texts, a caption."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from .figure_names import name_coinciding, series_of

__all__ = ["finish", "with_line_below"]

PAD = 0.05
"""Space around a legend, in inches."""


def finish(figure: Any) -> None:
    """Move legends out of the axes, make the figure higher for them, and fix the layout.

    A legend is below its panel. The legend of the only panel that has one, and equal legends of
    several panels, are one legend below the whole figure.
    """
    for ax in figure.axes:
        _shorten(ax)
        _count_in_whole_numbers(ax)
        _show_whole_markers(ax)
    figure.draw_without_rendering()
    for ax in figure.axes:
        _spread_names(ax)
    own = {ax: legend for ax in figure.axes if ax.axison and (legend := ax.get_legend())}
    height = 0.0
    if len({tuple(_texts(legend)) for legend in own.values()}) == 1 and _is_for_all(figure, own):
        ax, legend = next(iter(own.items()))
        for each in own.values():
            each.remove()
        below(figure, *_parts(ax, legend))
    else:
        height += _below_panels(figure, own)
    for legend in list(figure.legends):
        height += _height(legend) + 2 * PAD
    if height:
        width, before = figure.get_size_inches()
        figure.set_size_inches(width, before + height)
    figure.draw_without_rendering()
    for ax in figure.axes:
        _shorten(ax)  # turned names and legends have taken room from the axes
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for ax in figure.axes:
        name_coinciding(ax)


def remove(figure: Any, beginning: str) -> None:
    """Remove all whose name in a legend has this beginning, from panels and legends."""
    for ax in figure.axes:
        for artist in (*ax.lines, *ax.patches, *ax.collections):
            if str(artist.get_label()).startswith(beginning):
                artist.remove()
    own = [(ax, ax.get_legend()) for ax in figure.axes if ax.get_legend() is not None]
    for ax, legend in [*own, *((figure, legend) for legend in list(figure.legends))]:
        texts = _texts(legend)
        if not any(text.startswith(beginning) for text in texts):
            continue
        kept = [n for n, text in enumerate(texts) if not text.startswith(beginning)]
        handles = [legend.legend_handles[n] for n in kept]
        title = legend.get_title().get_text()
        legend.remove()
        if kept and ax is figure:
            below(figure, handles, [texts[n] for n in kept], title)
        elif kept:
            ax.legend(handles, [texts[n] for n in kept], title=title or None)


def _is_for_all(figure: Any, own: dict[Any, Any]) -> bool:
    """Return whether no other panel has a series that these legends lack."""
    told = {text for legend in own.values() for text in _texts(legend)}
    others = [ax for ax in figure.axes if ax not in own]
    return all(told.issuperset(ax.get_legend_handles_labels()[1]) for ax in others)


def _texts(legend: Any) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def _parts(ax: Any, legend: Any) -> tuple[list[Any], list[str], str]:
    """Return handles, texts and title of a legend, without what has no text."""
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    texts = [text for text in _texts(legend) if text]
    drawn = dict(zip(_texts(legend), legend.legend_handles, strict=True))
    return [handles.get(t, drawn[t]) for t in texts], texts, legend.get_title().get_text()


def below(figure: Any, handles: Sequence[Any], texts: Sequence[str], title: str = "") -> None:
    """Make the legend of a whole figure, below it, with as many columns as fit."""
    room = figure.get_figwidth() - 2 * PAD
    for columns in range(len(texts), 0, -1):
        legend = figure.legend(
            handles, texts, loc="outside lower center", ncols=columns, title=title or None
        )
        if columns == 1 or _width(legend) <= room:
            break
        legend.remove()


def _below_panels(figure: Any, own: dict[Any, Any]) -> float:
    """Put each legend below its panel; return by how much the figure must grow, in inches."""
    from matplotlib.transforms import ScaledTranslation

    grown: dict[Any, float] = {}
    for ax, legend in own.items():
        bottom = ax.xaxis.get_tightbbox() or ax.bbox
        drop = (min(bottom.y0, ax.bbox.y0) - ax.bbox.y0) / figure.dpi - PAD
        handles, texts, title = _parts(ax, legend)
        room = ax.get_tightbbox().width / figure.dpi
        for columns in range(len(texts), 0, -1):
            made = ax.legend(
                handles,
                texts,
                loc="upper center",
                ncols=columns,
                title=title or None,
                bbox_to_anchor=(0.5, 0.0),
                bbox_transform=ax.transAxes + ScaledTranslation(0, drop, figure.dpi_scale_trans),
                borderaxespad=0.0,
            )
            if columns == 1 or _width(made) <= room:
                break
        spec = ax.get_subplotspec()
        row = spec.rowspan.start if spec is not None else 0
        grown[row] = max(grown.get(row, 0.0), _height(made) + PAD)
    return sum(grown.values())


def _width(legend: Any) -> float:
    return float(legend.get_window_extent().width / legend.get_figure().dpi)


def _height(legend: Any) -> float:
    return float(legend.get_window_extent().height / legend.get_figure().dpi)


def _shorten(ax: Any) -> None:
    """Break titles and labels of the axes that are longer than the axes."""
    inches = ax.get_position().size * ax.figure.get_size_inches()
    for label, room in (
        (ax.xaxis.label, inches[0]),
        (ax.yaxis.label, inches[1]),
        (ax.title, inches[0]),
    ):
        text = label.get_text()
        most = max(12, int(room * 72 / (0.5 * label.get_fontsize())))
        if text and "\n" not in text and "$" not in text and len(text) > most:
            label.set_text("\n".join(_balanced(text, most)))


def _balanced(text: str, most: int) -> list[str]:
    """Wrap a text into as few lines as hold it, about equally long."""
    count = len(textwrap.wrap(text, most, break_long_words=False))
    for width in range(max(1, len(text) // count), most + 1):
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        if len(lines) <= count:
            return lines
    return textwrap.wrap(text, most, break_long_words=False)


def _count_in_whole_numbers(ax: Any) -> None:
    """Leave fractions out of an x axis on which every point is a whole number."""
    from matplotlib.ticker import AutoLocator

    locator = ax.xaxis.get_major_locator()
    places = [x for line in series_of(ax) for x in line.get_xdata()]
    if isinstance(locator, AutoLocator) and all(float(x).is_integer() for x in places):
        locator.set_params(integer=True)


def _show_whole_markers(ax: Any) -> None:
    """Let markers at the edge of the axes reach beyond it."""
    (left, right), (low, high) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
    for line in ax.lines:
        inside = [left <= x <= right and low <= y <= high for x, y in line.get_xydata()]
        if inside and all(inside) and line.get_transform() == ax.transData:
            line.set_clip_on(False)


def _spread_names(ax: Any) -> None:
    """Break the names below bars that overlap; turn them if that does not help."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    ticks = ax.xaxis.get_ticklabels()
    if not _overlap(ticks):
        return
    if not isinstance(ax.xaxis.get_major_locator(), FixedLocator):
        if isinstance(ax.xaxis.get_major_locator(), MaxNLocator):
            ax.xaxis.set_major_locator(MaxNLocator(4))
        return
    names = [t.get_text().replace(" ", "\n") for t in ticks]
    ax.set_xticks(ax.get_xticks(), names)
    if max(name.count("\n") for name in names) > 2 or _overlap(ax.xaxis.get_ticklabels()):
        ax.set_xticks(ax.get_xticks(), [n.replace("\n", " ") for n in names])
        ax.tick_params(axis="x", labelrotation=30)
        for tick in ax.xaxis.get_ticklabels():
            tick.set(ha="right", rotation_mode="anchor")


def _overlap(labels: Iterable[Any]) -> bool:
    boxes = [t.get_window_extent() for t in labels if t.get_text() and t.get_visible()]
    boxes.sort(key=lambda b: b.x0)
    return any(a.x1 + 3 > b.x0 for a, b in pairwise(boxes))


def with_line_below(figure: Any, line: str) -> float:
    """Write a line below a finished figure; return the height that it takes, in inches."""
    width, height = figure.get_size_inches()
    for legend in figure.legends:  # "outside" would follow the lower edge of the file
        corner = figure.transFigure.inverted().transform(legend.get_window_extent().min)
        legend.borderaxespad = 0
        legend.set_loc("lower left")
        legend.set_bbox_to_anchor(tuple(corner), transform=figure.transFigure)
    size = 6.5
    lines = textwrap.wrap(line, int(width * 72 / (0.5 * size)))
    high = (len(lines) * 1.3 + 0.6) * size / 72
    figure.text(
        PAD / width,
        -high / height,
        "\n".join(lines),
        fontsize=size,
        va="bottom",
        ha="left",
        linespacing=1.3,
        in_layout=False,
    )
    return high
