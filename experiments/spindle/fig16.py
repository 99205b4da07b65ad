"""Throughput of one subgroup with all that Spindle does (figure 16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("baseline", "paper", "best")


def measure(point: Point) -> Any:
    """Measure one pattern."""
    load = {"preset": point["series"], "senders": point["senders"]}
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def ahead(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether Spindle is ahead in each pattern, on average over the sizes."""
    of, to = {"series": "paper"}, {"series": "baseline"}
    means = {
        senders: float(_multicast.ratios(data, "throughput", of, to, senders=senders).mean())
        for senders in _multicast.PATTERNS
    }
    return Decision(min(means.values()) > 1, _multicast.listed(means, "{:.2f} times"))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no number in the text
    """Draw the throughput of each pattern."""
    fig, panels = figures.new(1, 3)
    for ax, (senders, name) in zip(panels, _multicast.PATTERNS.items(), strict=True):
        _multicast.draw(ax, data, SERIES, senders=senders)
        _multicast.finish(ax, data, senders=senders)
        ax.set_title(name)
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="spindle/fig16",
    title="Final throughput, all optimisations, single subgroup",
    profile="spindle",
    axes={
        "series": Axis(SERIES),
        "senders": Axis(list(_multicast.PATTERNS)),
        "nodes": _multicast.NODES,
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={"spindle/fig16_final_throughput": ahead},
)
