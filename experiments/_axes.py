"""Helpers of the experiments' figures beside `pyrdma.figures`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyrdma import figure_names, figures

__all__ = [
    "from_zero",
    "hollow",
    "layer",
    "logarithmic",
    "write_inside",
    "write_values",
]


def from_zero(*panels: Any) -> None:
    """Start the y axis at zero, with room above all that has been drawn so far."""
    for ax in panels:
        ax.set_ylim(0, 1.06 * ax.get_ylim()[1])


def write_values(ax: Any, form: str = "{:.2f}") -> None:
    """Write each bar's height above it, clear of a paper's marker at its end."""
    for container in ax.containers:
        if hasattr(container, "patches"):
            texts = [form.format(patch.get_height()) for patch in container.patches]
            ax.bar_label(container, labels=texts, padding=5, fontsize=7)


def write_inside(ax: Any, form: str = "{:.2f}") -> None:
    """Write each bar's height at its foot, where a paper's marker is near its end."""
    box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.2"}
    at_foot = {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "bottom"}
    for container in ax.containers:
        for patch in getattr(container, "patches", ()):
            text = form.format(patch.get_height())
            x = patch.get_x() + patch.get_width() / 2
            ax.text(x, 0.03, text, fontsize=7, bbox=box, **at_foot)


def logarithmic(*panels: Any) -> None:
    """Make the y axis logarithmic, with plain numbers at 1, 2 and 5, or at 1 alone."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for ax in panels:
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        alone = len(ax.get_shared_y_axes().get_siblings(ax)) == 1
        if alone and high < 3 * low:  # a narrow range would blow up small differences
            low, high = low / 1.8, high * 1.8
            ax.set_ylim(low, high)
        few = high / low < 1000
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())


def layer(ax: Any) -> None:
    """Draw earlier series wider, so that lines on top of each other can all be seen."""
    series = figure_names.series_of(ax)
    wider = {line: len(series) - 1 - n for n, line in enumerate(series)}
    last = None
    for line in ax.lines:
        if line in wider:
            line.set_linewidth(line.get_linewidth() + 0.6 * wider[line])
            line.set_markersize(line.get_markersize() + 0.9 * wider[line])
            last = line
        elif last is not None and line.get_gid() == figure_names.RING:
            line.set_markersize(last.get_markersize() + figure_names.RING_WIDER)


def hollow(ax: Any, x: float, y: float, label: str, marker: str = "o") -> None:
    """Draw a number that follows from the paper's, marked as `pyrdma.figures.overlay` does."""
    if not figures.with_paper():
        return
    style: Mapping[str, Any] = {"color": "black", "markerfacecolor": "none", "zorder": 5}
    (mark,) = ax.plot(
        [x],
        [y],
        marker,
        markersize=6.5,
        markeredgewidth=1.1,
        linestyle="none",
        label=label,
        **style,
    )
    mark.set_path_effects(figures.halo())
