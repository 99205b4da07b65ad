"""Throughput with several active subgroups, batching without Spindle's locking (section 4.1.3).

All nodes are in all subgroups and send in several of them in turn. The paper names no numbers. A
sender's messages are divided among its active subgroups, and each has three windows at least.
`fig13` has the version with posts after the lock is released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decider, Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACTIVE = Axis([1, 2, 10], full=[1, 2, 5, 10, 20, 50])
MUCH = 2  # times: a smaller gain is not >>


def load(point: Point, series: str) -> Any:
    """Measure one number of active subgroups."""
    nodes, active = point["nodes"], point["active"]
    sent = max(3 * _multicast.WINDOW, _multicast.messages(point, nodes) // active)
    shape = {"subgroups": active, "active": active, "messages": sent}
    return _multicast.measured(_multicast.run(point, nodes, preset=series, **shape))


def measure(point: Point) -> Any:
    """Measure one number of active subgroups with one preset."""
    return load(point, point["series"])


def several(data: Data) -> list[int]:
    """Return the measured numbers of active subgroups above one."""
    found = [int(n) for n in data.values_of("active") if n > 1]
    if not found:
        raise decide.NotEvaluated("only one active subgroup was measured")
    return found


def ahead(series: str, factor: float = 1.0) -> Decider:
    """Decide whether `series` is above `factor` times the baseline with several, on average."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        both = {"series": series}, {"series": "baseline"}
        means = {
            active: float(_multicast.ratios(data, "throughput", *both, active=active).mean())
            for active in several(data)
        }
        text = _multicast.listed(means, "{:.2f} times")
        return Decision(min(means.values()) > factor, f"{text} active")

    return decider


def by_active(data: Data, series: str) -> dict[int, float]:
    """Return the mean throughput over the sizes, by the number of active subgroups."""
    return {
        active: float(
            data.series("throughput", "nodes", "GB/s", series=series, active=active).mean()
        )
        for active in several(data)
    }


def declines(data: Data, claim: Claim) -> Decision:
    """Decide whether the most active subgroups have much less throughput than two."""
    found = by_active(data, "batching")
    first, *_, last = found.values()
    holds = last < (1 - claim.tolerance) * first
    return Decision(holds, f"GB/s: {_multicast.listed(found)} active")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - ranks alone
    """Draw the throughput over the sizes, a panel for each system."""
    return drawn(data, ("baseline", "batching"))


def drawn(data: Data, systems: tuple[str, ...]) -> Figure:
    """Draw one panel for each system, a line for each number of active subgroups."""
    fig, panels = figures.new(1, len(systems), sharey=True)
    names = {n: "1 active" if n == 1 else f"{n} active" for n in data.values_of("active")}
    for ax, series in zip(panels, systems, strict=True):
        _multicast.draw(ax, data, names, by="active", series=series)
        ax.set_title(_multicast.NAMES[series])
    for ax in panels:
        _multicast.finish(ax, data, senders="all")
    for ax in panels[1:]:
        ax.set_ylabel("")
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="spindle/sec4_1_3_multi_active",
    title="Several active subgroups with batching only",
    profile="spindle",
    axes={
        "series": Axis(["baseline", "batching"]),
        "active": ACTIVE,
        "nodes": Axis([4, 8], full=_multicast.ALL_NODES),
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/multi_active_batching_gain": ahead("batching", MUCH),
        "spindle/multi_active_batching_decline": declines,
    },
    misses={
        "spindle/multi_active_batching_gain": _misses.FAST,
        "spindle/multi_active_batching_decline": "posts take 6 to 14 % of the predicate "
        "thread's time with batching (spindle/sec3_2_posting_share), and the links are the "
        "limit: the rate with 2 and with 10 is the same within 3 %",
    },
)
