"""Messages per second of several sizes under opportunistic batching (figure 4).

All members send. A slot has the length of a message, 8 bytes of which are its header. The text says
the same of the baseline's throughput, so the experiment measures both.
"""

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

SIZES = {1: "1 B", 128: "128 B", 1024: "1 KB", _multicast.SIZE: "10 KB"}
SERIES = ("baseline", "batching")
RATES = (
    "the links limit messages of 10 KB, and the CPU limits small ones: 16 members deliver 0.90 "
    "M/s of 10 KB, 9.2 of 13.3 GB/s, and 7.9 M/s of 1 B. The baseline's rates are within 8 % of "
    "each other"
)


def measure(point: Point) -> Any:
    """Measure one size."""
    load = {"preset": point["series"], "max_message": point["size"]}
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def spread(data: Data, series: str) -> dict[int, float]:
    """Return the highest rate of all sizes as a multiple of the lowest, by nodes."""
    found = {}
    for nodes in data.values_of("nodes"):
        rates = data.series("message_rate", "size", series=series, nodes=nodes)
        found[int(nodes)] = float(rates.max() / rates.min())
    return found


def constant_rate(data: Data, claim: Claim) -> Decision:
    """Decide whether the rates of all sizes are within the tolerance of each other."""
    found = spread(data, "batching")
    text = _multicast.listed(found)
    return Decision(max(found.values()) <= 1 + claim.tolerance, f"highest / lowest rate: {text}")


def proportional(data: Data, claim: Claim) -> Decision:
    """Decide whether bytes per second divided by the size are within the tolerance for both."""
    found = {series: max(spread(data, series).values()) for series in SERIES}
    text = ", ".join(f"{series} {most:.2f}" for series, most in found.items())
    holds = max(found.values()) <= 1 + claim.tolerance
    return Decision(holds, f"largest ratio of GB/s per byte of a message: {text}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no number in the text
    """Draw the rate of each size, of batching and of the baseline."""
    fig, panels = figures.new(1, 2)
    for ax, series in zip(panels, reversed(SERIES), strict=True):
        _multicast.draw(ax, data, SIZES, "message_rate", "Mop/s", by="size", series=series)
        _multicast.finish(ax, data, "Messages delivered per second (M)")
        ax.set_title(_multicast.NAMES[series])
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="spindle/fig4",
    title="Single subgroup, effect of message size under opportunistic batching",
    profile="spindle",
    axes={
        "series": Axis(SERIES),
        "size": Axis(list(SIZES), unit="B"),
        "nodes": _multicast.FEW_NODES,
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig4_message_rate_constant": constant_rate,
        "spindle/fig4_throughput_proportional": proportional,
    },
    misses={
        "spindle/fig4_message_rate_constant": RATES,
        "spindle/fig4_throughput_proportional": RATES,
    },
)
