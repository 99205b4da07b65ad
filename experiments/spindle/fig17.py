"""Latency of one subgroup with all that Spindle does (figure 17): the runs of figure 16.

The paper does not say what it measures. Here it is the median time from the free slot of a message
to its delivery at its sender, with the wait in the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _misses, _multicast, fig16
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUBSTANTIAL = 2  # times: a latency that is lower by less is not substantially below


def measure(point: Point) -> Any:
    """Measure one pattern."""
    return fig16.measure(point)


def below(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the mean ratio over the sizes is above 2 in each pattern."""
    of, to = {"series": "baseline"}, {"series": "paper"}
    means = {
        senders: float(_multicast.ratios(data, "latency", of, to, senders=senders).mean())
        for senders in _multicast.PATTERNS
    }
    text = f"the baseline's latency is {_multicast.listed(means, '{:.2f} times')}"
    return Decision(min(means.values()) > SUBSTANTIAL, text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no number in the text
    """Draw the latency of each pattern on a logarithmic axis, as the paper does."""
    fig, panels = figures.new(1, 3, sharey=True)
    for ax, (senders, name) in zip(panels, _multicast.PATTERNS.items(), strict=True):
        _multicast.draw(ax, data, fig16.SERIES, "latency", "us", senders=senders)
        nodes = data.values_of("nodes")
        ax.set_xticks(nodes if len(nodes) < 10 else nodes[::2])
        ax.set(xlabel="Nodes", title=name)
    _axes.logarithmic(panels[0])
    panels[0].set_ylabel("Median latency (µs)")
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="spindle/fig17",
    title="Final latency, all optimisations, single subgroup",
    profile="spindle",
    axes={
        "series": Axis(fig16.SERIES),
        "senders": Axis(list(_multicast.PATTERNS)),
        "nodes": _multicast.FEW_NODES,
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={"spindle/fig17_latency_improves": below},
    misses={
        "spindle/fig17_latency_improves": _misses.ONE,
    },
)
