"""Throughput of continuous senders with and without null-sends (figure 11).

The paper calls some subgroups small and names no size. Here those of up to 8 members are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NULLS, NONE = {"series": "batching+nulls"}, {"series": "batching"}
NEGLIGIBLE = 0.05  # of the throughput without nulls


def measure(point: Point) -> Any:
    """Measure one pattern with or without nulls."""
    load = {"preset": point["series"], "senders": point["senders"]}
    result = _multicast.run(point, point["nodes"], **load)
    return {**_multicast.measured(result), "nulls_sent": (result.value("nulls"), "count")}


def change(data: Data, senders: str) -> pd.Series:
    """Return the change of the throughput that nulls make, in percent by nodes."""
    return 100 * (_multicast.ratios(data, "throughput", NULLS, NONE, senders=senders) - 1)


def largest_drop(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the lowest change of the small subgroups."""
    found = change(data, "all")
    small = found[found.index <= _multicast.SMALL]
    return Decision(None, float(small.min()), f"%: {_multicast.listed(found, '{:.1f}')}")


def crosses(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether nulls lose in the smallest subgroup and win in the largest."""
    found = change(data, "all")
    holds = found.iloc[0] < 0 < found.iloc[-1]
    return Decision(bool(holds), f"%: {_multicast.listed(found, '{:.1f}')}")


def negligible(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether small subgroups lose 5 % at most when half of the members send."""
    found = change(data, "half")
    small = found[found.index <= _multicast.SMALL]
    holds = small.min() >= -100 * NEGLIGIBLE
    return Decision(bool(holds), f"%: {_multicast.listed(small, '{:.1f}')}")


def most_nulls(data: Data, claim: Claim) -> float:  # noqa: ARG001 - a decider's signature
    """Take the largest number of nulls of a single sender."""
    return float(data.select("nulls_sent", senders="one", **NULLS)["value"].max())


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the throughput of all senders, and the change of each pattern."""
    fig, (left, right) = figures.new(1, 2)
    series = ("batching", "batching+nulls", "best")
    _multicast.draw(left, data, series, senders="all")
    _multicast.finish(left, data, senders="all")
    left.set_title("all senders")
    for number, (senders, name) in enumerate(_multicast.PATTERNS.items()):
        found = change(data, senders)
        style = figures.style_of(number + len(series))
        right.plot(list(found.index), list(found), label=f"change, {name}", **style)
    _multicast.marked_level(right, data, claims["spindle/fig11_all_small_worse"], "largest drop")
    nodes = data.values_of("nodes")
    right.set(xlabel="Nodes", ylabel="Change by nulls (%)", title="each pattern")
    right.set_xticks(nodes if len(nodes) < 10 else nodes[::2])
    figures.legend_below((left, right))
    return fig


experiment = Experiment(
    id="spindle/fig11",
    title="Cost or gain of null-sends under continuous sending",
    profile="spindle",
    axes={
        "series": Axis(["batching", "batching+nulls", "best"]),
        "senders": Axis(list(_multicast.PATTERNS)),
        "nodes": _multicast.NODES,
    },
    where=lambda params: params["series"] != "best" or params["senders"] == "all",
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig11_all_small_worse": largest_drop,
        "spindle/fig11_all_large_better": crosses,
        "spindle/fig11_half_small": negligible,
        "spindle/fig11_one_no_overhead": _multicast.average(
            "throughput", NULLS, NONE, "change", senders="one"
        ),
        "spindle/fig11_one_no_nulls": decide.by_construction(
            most_nulls, "a null precedes a message of another sender, and there is none"
        ),
    },
    misses={
        "spindle/fig11_all_small_worse": _misses.NULLS,
        "spindle/fig11_all_large_better": _misses.NULLS,
    },
)
