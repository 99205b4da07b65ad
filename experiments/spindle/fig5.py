"""Throughput and latency as delivery, receive and send batching are added (figure 5).

All members send. The paper does not say which latency it plots: here it is the median time from the
free slot of a message to its delivery at its sender, with the wait in the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGES: dict[str, dict[str, str]] = {
    "baseline": {"preset": "baseline"},
    "+ delivery": {"preset": "baseline", "batch_delivery": "on"},
    "+ receive": {"preset": "baseline", "batch_delivery": "on", "batch_receive": "on"},
    "+ send": {"preset": "batching"},
}
FIRST, LAST = {"series": "baseline"}, {"series": "+ send"}


def measure(point: Point) -> Any:
    """Measure one stage."""
    load = STAGES[point["series"]]
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no number in the text
    """Draw throughput and latency of each stage."""
    fig, (left, right) = figures.new(1, 2)
    _multicast.draw(left, data, list(STAGES))
    _multicast.finish(left, data, senders="all")
    _multicast.draw(right, data, list(STAGES), "latency", "us")
    _multicast.finish(right, data, "Median latency (µs)")
    right.set_ylim(auto=True)
    _axes.logarithmic(right)
    figures.legend_below((left, right))
    return fig


experiment = Experiment(
    id="spindle/fig5",
    title="Incremental effect of delivery, receive and send batching",
    profile="spindle",
    axes={"series": Axis(list(STAGES)), "nodes": _multicast.NODES},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig5_throughput_each_stage": _multicast.at_every("throughput", LAST, FIRST),
        "spindle/fig5_latency_each_stage": _multicast.at_every("latency", FIRST, LAST),
    },
)
