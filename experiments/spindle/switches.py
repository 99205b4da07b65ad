"""What each of our own switches gains over the paper's protocol; the paper has no such figure.

`exact_bytes` pushes only the used bytes of the last slot, so it counts for messages that are
shorter than their slots. `short_sends` splits a long batch, so that the last member does not wait
until the first one has all of it. The others save looks and waits of the predicate thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWITCHES = ("short_sends", "exact_bytes", "skip_quiet", "unlocked_upcalls", "batch_upcall")
SERIES: dict[str, dict[str, str]] = {
    "paper": {"preset": "paper"},
    **{name: {"preset": "paper", name: "on"} for name in SWITCHES},
    "best": {"preset": "best"},
}
LOADS = {
    "10 KB": {},
    "1 KB in slots of 10 KB": {"message": 1024},
    "10 KB, 16 subgroups, one active": {"subgroups": 16},
}


def measure(point: Point) -> Any:
    """Measure one switch."""
    load = {**SERIES[point["series"]], **LOADS[point["load"]]}
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no claims
    """Draw the rate of each switch, as a multiple of the paper's."""
    nodes = data.values_of("nodes")
    fig, axes = figures.new(1, len(LOADS), sharey=True)
    for ax, load in zip(axes, LOADS, strict=True):
        gains = {
            f"{n} nodes": [
                data.value("message_rate", "op/s", series=series, load=load, nodes=n)
                / data.value("message_rate", "op/s", series="paper", load=load, nodes=n)
                for series in SERIES
                if series != "paper"
            ]
            for n in nodes
        }
        names = [name.replace("_", " ") for name in SERIES if name != "paper"]
        figures.bars(ax, names, gains)
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set_title(load)
    axes[0].set_ylabel("Rate, as a multiple of the paper's")
    axes[0].legend()
    return fig


experiment = Experiment(
    id="spindle/switches",
    title="Gain of each of our switches over the paper's protocol",
    profile="spindle",
    axes={
        "series": Axis(list(SERIES)),
        "load": Axis(list(LOADS)),
        "nodes": Axis([4, 16]),
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={},
)
