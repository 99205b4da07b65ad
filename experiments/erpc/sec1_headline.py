"""The three headline numbers of one core (abstract, section 1).

Each comes from a later experiment, on its own cluster: small RPCs sent and served (figure 4), the
median latency (table 2), and the goodput of long requests (figure 6). The fourth, the latency of
replication, is that of table 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import _load, _misses, table6
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.errors import Unavailable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (  # profile, metric, unit, claim, label
    ("cx4", "rate", "Mop/s", "headline_core_rate", "RPCs per core (M/s)"),
    ("cx5", "latency_p50", "us", "headline_p50", "Median latency (µs)"),
    ("cx5_ib100", "bandwidth", "Gbps", "headline_core_bw", "Goodput per core (Gbps)"),
    ("cx5", "put_p50", "us", "headline_replication", "Median of a replicated put (µs)"),
)


def measure(point: Point) -> Any:
    """Measure the numbers of one cluster."""
    if point.profile == "cx4":
        sent, unit = _load.rate(point)
        return {"rate": (2 * sent, unit)}
    if point.profile == "cx5":
        alone = (_load.one(point).latency("rpc").percentile(50), "ns")
        return {"latency_p50": alone, **replicated(point)}
    return {"bandwidth": _load.large(point, _load.LARGE)}


def replicated(point: Point) -> dict[str, Any]:
    """Measure a replicated put where libraft is installed."""
    try:
        return {"put_p50": table6.measure(point)["put_p50"]}
    except Unavailable:
        return {}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the numbers beside the paper's."""
    shown = [panel for panel in PANELS if panel[1] in set(data.frame["metric"])]
    fig, panels = figures.new(1, len(shown))
    for ax, (profile, metric, unit, claim, label) in zip(panels, shown, strict=True):
        found = data.value(metric, unit, profile=profile)
        figures.bars(ax, [profile.upper()], {"eRPC": [found]})
        _axes.write_inside(ax, "{:.1f}")
        number = claims[f"erpc/{claim}"]
        figures.overlay(ax, [(number, 0)], unit=unit, names={"eRPC": "eRPC"})
        ax.set(ylabel=label, ylim=(0, 1.5 * max(found, number.number or 0)), xlim=(-0.8, 0.8))
    panels[0].legend()
    return fig


experiment = Experiment(
    id="erpc/sec1_headline",
    title="Headline numbers of one core",
    profile="cx4",
    axes={"profile": Axis(list(dict.fromkeys(profile for profile, *_ in PANELS)))},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "this machine is none of the clusters; see pyrdma bench erpc/"},
    decides={
        f"erpc/{claim}": decide.value(metric, profile=profile)
        for profile, metric, _, claim, _ in PANELS
    },
    misses={
        "erpc/headline_core_rate": _misses.RATE,
        "erpc/headline_core_bw": _misses.COPIES,
        "erpc/headline_p50": _misses.LATENCY,
        "erpc/headline_replication": _misses.RAFT,
    },
)
