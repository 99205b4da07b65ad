"""Throughput when posts follow the release of the lock (figure 12).

All members send; batching and null-sends are on.
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
    from matplotlib.figure import Figure

SERIES = ("batching+nulls", "paper", "best")
LOCKED: dict[str, Any] = {"series": "batching+nulls"}
FREE: dict[str, Any] = {"series": "paper"}
PEAK = 4  # members at the paper's peak


def measure(point: Point) -> Any:
    """Measure one subgroup."""
    return _multicast.measured(_multicast.run(point, point["nodes"], preset=point["series"]))


def stable(data: Data, claim: Claim) -> Decision:
    """Decide whether 4 members and more are within the tolerance of their mean."""
    found = data.series("throughput", "nodes", "GB/s", **FREE)
    found = found[found.index >= PEAK]
    apart = float((found / found.mean() - 1).abs().max())
    text = f"within {apart:.0%} of the mean; GB/s: {_multicast.listed(found)}"
    return Decision(apart <= claim.tolerance, text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the throughput, and the gain with the paper's mean."""
    fig, (left, right) = figures.new(1, 2)
    _multicast.draw(left, data, SERIES)
    peak = claims["spindle/fig12_peak_throughput"]
    figures.overlay(left, [(peak, PEAK)], unit="GB/s", names={"spindle_full": "peak of Spindle"})
    _multicast.finish(left, data, senders="all")
    for number, series in enumerate(SERIES[1:], start=1):
        found = _multicast.ratios(data, "throughput", {"series": series}, LOCKED)
        style = figures.style_of(number)
        right.plot(list(found.index), list(found), label=_multicast.NAMES[series], **style)
    mean = claims["spindle/fig12_speedup_avg"]
    _multicast.marked_level(right, data, mean, "mean of Spindle", 1)
    _multicast.finish(right, data, "Throughput / posts under the lock")
    figures.legend_below((left, right))
    return fig


experiment = Experiment(
    id="spindle/fig12",
    title="Efficient thread synchronisation, single subgroup",
    profile="spindle",
    axes={"series": Axis(SERIES), "nodes": _multicast.NODES},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig12_speedup_avg": _multicast.average("throughput", FREE, LOCKED),
        "spindle/fig12_peak_utilization": _multicast.utilization("paper"),
        "spindle/fig12_peak_throughput": decide.extreme("throughput", "nodes", **FREE),
        "spindle/fig12_stable": stable,
    },
    misses={
        "spindle/fig12_speedup_avg": "posts take 6 to 14 % of the predicate thread's time with "
        "batching (spindle/sec3_2_posting_share), and a sender waits for a free slot and not "
        "for the lock: 85 % of the time at 16 members (spindle/sec4_1_1_counters)",
        "spindle/fig12_peak_utilization": _misses.LINK,
        "spindle/fig12_peak_throughput": _misses.LINK,
    },
)
