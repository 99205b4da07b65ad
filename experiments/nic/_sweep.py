"""Sweeps of public micro-benchmarks: an experiment measures the points that its claims state."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from experiments import _axes
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim, load
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WHY_NOT", "Chart", "experiment", "lines", "reasons"]

NINTH: Mapping[str, Any] = {"color": "#999933", "marker": "d", "linestyle": "-"}
"""Style of a line beyond those of `figures.style_of`, which begin again."""

MARK: Mapping[str, Any] = {"marker": "_", "markersize": 14}
"""Style of a simulated point beside which no other is, for a line."""

BAR: Mapping[str, Any] = {"elinewidth": 0.8, "capsize": 2}
_SPREAD = re.compile(r"median of \d+ data, ([\d.]+) to ([\d.]+)")
"""Part of a claim's note with the least and the largest of its data."""

UNITS = {"size": "B", "mtu": "B"}
WHY_NOT = "its claims are about the NIC of a testbed that the simulator models"


@dataclass(frozen=True)
class Chart:
    """A figure: `metric` against the parameter `x`, with a line per value of `by`.

    Each combination of the parameters `panels` has a panel of its own; `names` has the texts for
    values, or for pairs of a parameter and a value.
    """

    metric: str
    unit: str
    x: str
    xlabel: str
    ylabel: str
    by: str | None = None
    panels: tuple[str, ...] = ()
    names: Mapping[Any, str] | None = None
    log: str = ""  # "x", "y" or "xy"


def experiment(
    name: str,
    title: str,
    profile: str,
    measure: Callable[[Point], Any],
    figure: Callable[[Data, Mapping[str, Claim]], Figure],
) -> Experiment:
    """Return the experiment that measures every point of the claims about `name`.

    A quick run has all points, since each takes a fraction of a second.
    """
    claims = [claim for claim in load().values() if claim.experiment == f"nic/{name}"]
    axes = list(claims[0].params)
    points = {tuple(claim.params[axis] for axis in axes) for claim in claims}
    values = {axis: dict.fromkeys(claim.params[axis] for claim in claims) for axis in axes}
    return Experiment(
        id=f"nic/{name}",
        title=title,
        profile=profile,
        axes={axis: Axis(_sorted(values[axis]), unit=UNITS.get(axis, "")) for axis in axes},
        where=lambda params: tuple(params[axis] for axis in axes) in points,
        measure=measure,
        figure=figure,
        fabrics=("sim",),
        why_not={"shm": WHY_NOT, "verbs": WHY_NOT},
        decides={claim.id: decide.value(claim.metric, **claim.params) for claim in claims},
        misses=reasons([claim.id for claim in claims]),
    )


def reasons(claims: Iterable[str]) -> dict[str, str]:
    """Return the reasons that ``misses.yaml`` states for misses among `claims`."""
    return {
        claim: reason
        for claim in claims
        for pattern, reason in _stated_misses()
        if fnmatchcase(claim, f"nic/{pattern}")
    }


@cache
def _stated_misses() -> list[tuple[str, str]]:
    text = Path(__file__).with_name("misses.yaml").read_text(encoding="utf-8")
    return [(p, entry["reason"]) for entry in yaml.safe_load(text) or [] for p in entry["claims"]]


def _sorted(values: Mapping[Any, None]) -> list[Any]:
    return sorted(values) if not any(isinstance(value, str) for value in values) else list(values)


def lines(name: str, chart: Chart) -> Callable[[Data, Mapping[str, Claim]], Figure]:
    """Return a function that draws the simulated lines and the published points."""

    def draw(data: Data, claims: Mapping[str, Claim]) -> Figure:
        panels = _groups(data, chart)
        columns = 2 if len(panels) == 4 else min(3, len(panels))
        fig, grid = figures.new(-(-len(panels) // columns), columns, squeeze=False)
        for ax, where in zip(grid.flat, panels, strict=False):
            published = [
                claim
                for claim in claims.values()
                if claim.experiment == f"nic/{name}"
                and all(claim.params[key] == value for key, value in where.items())
            ]
            _panel(ax, data, chart, published, where)
            ax.set(xlabel=chart.xlabel, ylabel=chart.ylabel)
            title = ", ".join(_text(chart, key, value) for key, value in where.items())
            ax.set_title(title)
        for ax in grid.flat[len(panels) :]:
            ax.set_visible(False)
        own = [claim for claim in claims.values() if claim.experiment == f"nic/{name}"]
        _legend(list(grid.flat[: len(panels)]), own)
        return fig

    return draw


def _legend(panels: Sequence[Any], published: Collection[Claim]) -> None:
    """Put one legend below the panels, with every line once, and what the points are."""
    if any(line.get_markersize() == MARK["markersize"] for ax in panels for line in ax.lines):
        style = {"color": "#777777", "linestyle": "none"}
        panels[0].plot([], [], label="simulated", **style, **MARK)
    roles = {claim.role for claim in published}
    points = {"validation": ("predicted", "#777777"), "calibration": ("calibrates", "none")}
    for role, (text, face) in points.items():
        if role in roles:
            style = {"color": "#777777", "markerfacecolor": face, "linestyle": "none"}
            panels[0].plot([], [], marker="o", label=f"published, {text}", **style)
    if any(_SPREAD.search(claim.note) for claim in published):
        style = {"color": "#777777", "linestyle": "none"}
        panels[0].errorbar([], [], [], label="bar: published range", **style, **BAR)
    figures.legend_below(panels)


def _groups(data: Data, chart: Chart) -> list[dict[str, Any]]:
    """Return the combinations of the parameters that have a panel each."""
    rows = data.select(chart.metric)
    if not chart.panels:
        return [{}]
    found = rows[list(chart.panels)].drop_duplicates().sort_values(list(chart.panels))
    return [dict(row) for row in found.to_dict("records")]


def _text(chart: Chart, parameter: str, value: Any) -> str:
    names = chart.names or {}
    plain = f"{parameter.replace('_', ' ')} {value}"
    return names.get((parameter, value)) or names.get(value, plain)


def _panel(
    ax: Any, data: Data, chart: Chart, published: Sequence[Claim], where: Mapping[str, Any]
) -> None:
    rows = data.select(chart.metric, **where)
    groups = [None] if chart.by is None else sorted(data.values_of(chart.by))
    named = isinstance(rows[chart.x].iloc[0], str)
    places = {x: x for x in rows[chart.x].unique().tolist()}
    if named:  # bars would hide the published points
        places = {x: place for place, x in enumerate(places)}
        shown = [(chart.names or {}).get(x, x).replace(", ", ",\n") for x in places]
        ax.set_xticks(list(places.values()), shown, fontsize=7)
        ax.margins(x=0.3)
    for number, group in enumerate(groups):
        chosen = dict(where) if chart.by is None else {**where, chart.by: group}
        style = NINTH if number == 8 else figures.style_of(number)
        # A group without points here has its place in the legend.
        here = chart.by is None or group in set(rows[chart.by])
        series = data.series(chart.metric, chart.x, chart.unit, **chosen) if here else {}
        marks = named or len(series) == 1  # nothing to join by a line
        (drawn,) = ax.plot(
            [places[x] for x, _ in series.items()],
            [y for _, y in series.items()],
            markevery=[],  # the legend shows the marker of the published points
            label="simulated" if chart.by is None else _text(chart, chart.by, group),
            **style,
        )
        if marks:
            drawn.set(**MARK, markevery=None, linestyle="none")
            drawn.set_label("_nolegend_")
            if chart.by is not None:
                ax.plot([], [], label=_text(chart, chart.by, group), **style)
        for claim in published:
            if chart.by is None or claim.params[chart.by] == group:
                _point(ax, places[claim.params[chart.x]], claim, style)
    if len(places) == 1:
        ax.set_xticks(list(places.values()), [str(x) for x in places])
    if "x" in chart.log:
        ax.set_xscale("log", base=2)
        ax.set_xticks(list(places), [str(x) for x in places])
        ax.minorticks_off()
    if "y" in chart.log:
        _axes.logarithmic(ax)
    else:
        _axes.from_zero(ax)


def _point(ax: Any, x: Any, claim: Claim, style: Mapping[str, Any]) -> None:
    """Draw a published number: filled if it is predicted, hollow if it calibrates.

    A median of several data has a bar from the least to the largest.
    """
    predicted = claim.role == "validation"
    middle = float(claim.number or 0)
    spread = _SPREAD.search(claim.note)
    ends = [[abs(middle - float(end))] for end in spread.groups()] if spread else None
    ax.errorbar(
        [x],
        [middle],
        ends,
        fmt=style["marker"],
        color=style["color"],
        markerfacecolor=style["color"] if predicted else "none",
        zorder=5,
        **BAR,
    )
