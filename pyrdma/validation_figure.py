"""The figure of ``pyrdma validate``: measured and simulated numbers, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import figures

if TYPE_CHECKING:
    from .validate import Comparison

__all__ = ["draw"]

_AXES = {"op/s": "Operations per second (op/s)", "ns": "Latency (ns)"}


def draw(found: Sequence[Comparison], fabric: str, out: Path) -> list[Path]:
    """Draw one panel for each unit; return the files. Entries without numbers are left out."""
    shown = [c for c in found if c.measured is not None and c.simulated is not None]
    units = list(dict.fromkeys(c.unit for c in shown))
    if not units:
        return []
    panels = [[c for c in shown if c.unit == unit] for unit in units]
    figure, axes = figures.new(
        len(units),
        squeeze=False,
        wide=True,
        height=1.2 + 0.9 * (len(units) - 1) + 0.25 * len(shown),
        gridspec_kw={"height_ratios": [len(panel) + 1 for panel in panels]},
    )
    for ax, unit, panel in zip(axes[:, 0], units, panels, strict=True):
        _panel(ax, panel, _AXES.get(unit, unit), fabric)
    figures.legend_below(list(axes[:, 0]))
    return figures.save(
        figure,
        out,
        f"validate-{fabric}",
        title=f"Fabric {fabric} and its simulation",
        about=f"Fabric {fabric} and sim; {len(shown)} workloads; bars: 95 % interval of the median",
    )


def _panel(ax: Any, panel: Sequence[Comparison], label: str, fabric: str) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    places = range(len(panel))
    measured = [c.measured or 0.0 for c in panel]
    simulated = [c.simulated or 0.0 for c in panel]
    below = [m - (c.low or m) for m, c in zip(measured, panel, strict=True)]
    above = [(c.high or m) - m for m, c in zip(measured, panel, strict=True)]
    bound = panel[0].bound
    ax.barh(
        places,
        [2 * m * bound for m in measured],
        left=[m * (1 - bound) for m in measured],
        height=0.6,
        color="#DDDDDD",
        label=f"within {bound:.0%} of measured",
    )
    ax.errorbar(
        measured,
        places,
        xerr=(below, above),
        fmt="o",
        color="#004488",
        capsize=3,
        linestyle="none",
        label=f"measured on {fabric}, 95 % interval",
    )
    ax.plot(
        simulated,
        places,
        "s",
        color="black",
        markerfacecolor="none",
        markersize=6.5,
        label="simulated",
    )
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(EngFormatter())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(label)
    ax.set_yticks(places, [c.name for c in panel])
    ax.set_ylim(len(panel) - 0.4, -0.6)
    right = ax.secondary_yaxis("right")
    right.set_yticks(places, [_error(c) for c in panel])
    right.tick_params(length=0)


def _error(c: Comparison) -> str:
    error = c.error or 0.0
    return f"{error:+.0%}" + ("" if c.within else " (missed)")
