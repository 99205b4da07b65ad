"""Throughput of the baseline with inactive subgroups (figure 8).

All nodes are in all subgroups and send in one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUBGROUPS = [1, 2, 5, 10, 20, 50]
NAMES = {1: "1 subgroup", **{n: f"{n} subgroups" for n in SUBGROUPS[1:]}}
ALONE = {"subgroups": 1}


def measure(point: Point) -> Any:
    """Measure one number of subgroups."""
    load = {"preset": "baseline", "subgroups": point["subgroups"]}
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def falls(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether more subgroups mean less throughput at every size; 5 % are no difference."""
    holds, worst = True, 0.0
    for nodes in data.values_of("nodes"):
        found = data.series("throughput", "subgroups", nodes=nodes)
        steps = [b / a - 1 for a, b in pairwise(list(found))]
        worst = max(worst, *steps)
        holds = holds and max(steps) <= 0.05 and found.iloc[-1] < found.iloc[0]
    return Decision(bool(holds), f"largest step upwards {100 * worst:.1f} %")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the throughput over the sizes, and what each number of subgroups leaves of it."""
    fig, (left, right) = figures.new(1, 2)
    counts = {n: name for n, name in NAMES.items() if n in data.values_of("subgroups")}
    _multicast.draw(left, data, counts, by="subgroups")
    _multicast.finish(left, data, senders="all")
    for number, (count, name) in enumerate(counts.items()):
        found = _multicast.ratios(data, "throughput", {"subgroups": count}, ALONE)
        right.plot(list(found.index), list(found), label=name, **figures.style_of(number))
    change = claims["spindle/fig8_one_inactive"].number
    rest = claims["spindle/fig8_50_subgroups"].number
    nodes = data.values_of("nodes")
    for level, text, style in (
        (1 + change / 100 if change is not None else None, "mean, 2 subgroups", "--"),
        (rest, "mean, 50 subgroups", ":"),
    ):
        if level is not None:
            ends = [nodes[0], nodes[-1]]
            right.plot(ends, [level] * 2, style, color="black", lw=0.9, label=f"paper: {text}")
    _multicast.finish(right, data, "Throughput / that of 1 subgroup")
    figures.legend_below((left, right))
    return fig


experiment = Experiment(
    id="spindle/fig8",
    title="Inactive subgroups: baseline",
    profile="spindle",
    axes={"subgroups": Axis([1, 2, 10, 50], full=SUBGROUPS), "nodes": _multicast.NODES},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig8_one_inactive": _multicast.average(
            "throughput", {"subgroups": 2}, ALONE, "change"
        ),
        "spindle/fig8_50_subgroups": _multicast.average("throughput", {"subgroups": 50}, ALONE),
        "spindle/fig8_monotone": falls,
    },
)
