"""Share of the predicates' time that the one active subgroup takes (section 4.1.3).

All 16 nodes are in all subgroups and send in one of them. The shares are those of node 0. The
measurement reads the clock around the predicates of each subgroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 16
SERIES = ("baseline", "batching", "best")
METRIC = "active_predicate_time_share"
KEYS = {"baseline": ("base", [2, 50]), "batching": ("batch", [2, 10, 50])}
"""By series: its name in the claims, and the paper's numbers of subgroups."""
POSTS = (
    "with posts a look at the active subgroup takes 10 times as long as one at an inactive "
    "subgroup, by the share with 2 subgroups, and 11 times with 50. The paper's 54 % are 1.2 "
    "times"
)


def measure(point: Point) -> Any:
    """Measure one number of subgroups."""
    sent = _multicast.messages(point, NODES)
    load = {"preset": point["series"], "subgroups": point["subgroups"], "messages": sent}
    result = _multicast.run(point, NODES, timed=True, **load)
    return {METRIC: (result.value("active_predicate_share"), "%")}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the shares beside the paper's."""
    fig, ax = figures.new()
    _multicast.draw(ax, data, SERIES, METRIC, "%", over="subgroups")
    numbers = [
        (claims[f"spindle/predtime_{key}_{count}"], count)
        for key, counts in KEYS.values()
        for count in counts
    ]
    names = {"baseline": "baseline", "spindle_batching": "batching"}
    figures.overlay(ax, numbers, unit="%", names=names)
    ax.set_xscale("log")
    counts = data.values_of("subgroups")
    ax.set_xticks(counts, [str(n) for n in counts])
    ax.minorticks_off()
    _axes.from_zero(ax)
    ax.set_xlabel("Subgroups, one of them active")
    ax.set_ylabel("Active subgroup's share of time (%)")
    ax.legend()
    return fig


experiment = Experiment(
    id="spindle/sec4_1_3_predicate_time",
    title="Share of predicate evaluation time spent on the one active subgroup",
    profile="spindle",
    axes={"series": Axis(SERIES), "subgroups": Axis([2, 10, 50], full=[2, 5, 10, 20, 50])},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        f"spindle/predtime_{key}_{count}": decide.value(METRIC, series=series, subgroups=count)
        for series, (key, counts) in KEYS.items()
        for count in counts
    },
    misses={
        "spindle/predtime_base_2": POSTS,
        "spindle/predtime_base_50": POSTS,
        "spindle/predtime_batch_2": _misses.IDLE,
        "spindle/predtime_batch_10": _misses.IDLE,
        "spindle/predtime_batch_50": _misses.IDLE,
    },
)
