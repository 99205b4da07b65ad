"""Throughput with several active subgroups, all of Spindle against the baseline (figure 13).

All nodes are in all subgroups and send in several of them in turn, as in `sec4_1_3_multi_active`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _misses, _multicast, sec4_1_3_multi_active
from pyrdma import Axis, Experiment, Point
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "paper"


def measure(point: Point) -> Any:
    """Measure one number of active subgroups with one preset."""
    return sec4_1_3_multi_active.load(point, point["series"])


def scales(data: Data, claim: Claim) -> Decision:
    """Decide whether the most active subgroups keep the throughput of two."""
    found = sec4_1_3_multi_active.by_active(data, PAPER)
    first, *_, last = found.values()
    holds = last >= (1 - claim.tolerance) * first
    return Decision(holds, f"GB/s: {_multicast.listed(found)} active")


def stable(data: Data, claim: Claim) -> Decision:
    """Decide whether each size is within the tolerance of the mean over the sizes."""
    worst, text = 0.0, ""
    for active in sec4_1_3_multi_active.several(data):
        found = data.series("throughput", "nodes", "GB/s", series=PAPER, active=active)
        apart = float((found / found.mean() - 1).abs().max())
        if apart > worst:
            worst, text = apart, f"{active} active, GB/s: {_multicast.listed(found)}"
    return Decision(worst <= claim.tolerance, f"within {worst:.0%} of the mean; {text}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - ranks alone
    """Draw the throughput over the sizes, a panel for each system."""
    return sec4_1_3_multi_active.drawn(data, ("baseline", PAPER, "best"))


experiment = Experiment(
    id="spindle/fig13",
    title="Several active subgroups, full Spindle against baseline",
    profile="spindle",
    axes={
        "series": Axis(["baseline", PAPER, "best"]),
        "active": sec4_1_3_multi_active.ACTIVE,
        "nodes": Axis([2, 4, 8], full=_multicast.ALL_NODES),
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig13_rank": sec4_1_3_multi_active.ahead(PAPER),
        "spindle/fig13_subgroup_scaling": scales,
        "spindle/fig13_size_stability": stable,
    },
    misses={
        "spindle/fig13_size_stability": _misses.LINK,
    },
)
