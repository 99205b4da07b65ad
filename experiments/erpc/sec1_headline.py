"""The three headline numbers of one core (abstract, section 1).

Each comes from a later experiment, on its own cluster: small RPCs sent and served (figure 4), the
median latency (table 2), and the goodput of long requests (figure 6). The fourth, the latency of
replication, is that of table 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import needs
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {  # profile: metric, unit, claim, label
    "cx4": ("rate", "Mop/s", "headline_core_rate", "RPCs per core (M/s)"),
    "cx5": ("latency_p50", "us", "headline_p50", "Median latency (µs)"),
    "cx5_ib100": ("bandwidth", "Gbps", "headline_core_bw", "Goodput per core (Gbps)"),
}


def measure(point: Point) -> Any:
    """Measure the number of one cluster."""
    if point.profile == "cx4":
        sent, unit = _load.rate(point)
        return {"rate": (2 * sent, unit)}
    if point.profile == "cx5":
        return {"latency_p50": (_load.one(point).latency("rpc").percentile(50), "ns")}
    return {"bandwidth": _load.large(point, _load.LARGE)}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the three numbers beside the paper's."""
    fig, panels = figures.new(1, 3, figsize=(7.2, 2.8))
    for ax, (profile, (metric, unit, claim, label)) in zip(panels, PANELS.items(), strict=True):
        found = data.value(metric, unit, profile=profile)
        figures.bars(ax, [profile.upper()], {"eRPC": [found]})
        _axes.write_values(ax, "{:.1f}")
        number = claims[f"erpc/{claim}"]
        figures.overlay(ax, [(number, 0)], unit=unit, names={"eRPC": "eRPC"})
        ax.set(ylabel=label, ylim=(0, 1.5 * max(found, number.number or 0)), xlim=(-0.8, 0.8))
    panels[0].legend(loc="upper left")
    return fig


experiment = Experiment(
    id="erpc/sec1_headline",
    title="Headline numbers of one core",
    profile="cx4",
    axes={"profile": Axis(list(PANELS))},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "this machine is none of the clusters; see pyrdma bench erpc/"},
    decides={
        **{
            f"erpc/{claim}": decide.value(metric, profile=profile)
            for profile, (metric, _, claim, _) in PANELS.items()
        },
        "erpc/headline_replication": needs("Raft over eRPC, which has no experiment yet"),
    },
)
