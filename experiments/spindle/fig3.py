"""Throughput of one subgroup whose senders never pause: batching against the baseline (figure 3).

Two to 16 members; all of them, half of them or one of them send.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

BASELINE: dict[str, Any] = {"series": "baseline"}
BATCHING: dict[str, Any] = {"series": "batching"}
PEAK = 11  # members at the paper's peak
MEANS = {
    "all": "spindle/fig3_all_senders_speedup_avg",
    "half": "spindle/fig3_half_senders_speedup_avg",
    "one": "spindle/fig3_one_sender_speedup_avg",
}


def measure(point: Point) -> Any:
    """Measure one subgroup."""
    load = {"preset": point["series"], "senders": point["senders"]}
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def gains(data: Data, senders: str) -> pd.Series:
    """Return the throughput of batching as a multiple of the baseline's, by nodes."""
    return _multicast.ratios(data, "throughput", BATCHING, BASELINE, senders=senders)


def peak_nodes(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the number of members with the highest throughput."""
    found = data.series("throughput", "nodes", "GB/s", senders="all", **BATCHING)
    return Decision(None, float(found.idxmax()), f"{found.max():.2f} GB/s")


def grows_with_senders(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the gain grows with the senders; a step may lose 5 %."""
    found = gains(data, "all")
    steps = [float(gain) for gain in found]
    holds = all(b >= 0.95 * a for a, b in pairwise(steps)) and steps[-1] > steps[0]
    return Decision(holds, _multicast.listed(found))


def ahead_on_average(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether batching is ahead in each pattern, on average over the sizes."""
    means = {senders: float(gains(data, senders).mean()) for senders in MEANS}
    return Decision(min(means.values()) > 1, _multicast.listed(means, "{:.2f} times"))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the throughput of each pattern, and the gain with the paper's means."""
    fig, panels = figures.new(2, 2)
    gain = panels[1][1]
    for ax, (senders, name) in zip(panels.flat, _multicast.PATTERNS.items(), strict=False):
        _multicast.draw(ax, data, ("baseline", "batching"), senders=senders)
        if senders == "all":
            peak = claims["spindle/fig3_peak_throughput"]
            figures.overlay(ax, [(peak, PEAK)], unit="GB/s", names={"spindle_batching": "peak"})
        _multicast.finish(ax, data, senders=senders)
        ax.set_title(name)
        found = gains(data, senders)
        number = list(MEANS).index(senders)
        gain.plot(list(found.index), list(found), label=name, **figures.style_of(number))
        _multicast.marked_level(gain, data, claims[MEANS[senders]], f"mean, {senders}", number)
    speedup = claims["spindle/fig3_speedup_16_senders"].number
    if speedup is not None:
        _axes.hollow(gain, 16, speedup, "paper: 16 senders")
    _multicast.finish(gain, data, "Throughput of batching / baseline", room=1.3)
    gain.set_title("gain by batching")
    figures.legend_below(list(panels.flat[:3]))
    gain.legend()
    return fig


experiment = Experiment(
    id="spindle/fig3",
    title="Single subgroup, continuous sending: opportunistic batching against baseline",
    profile="spindle",
    axes={
        "series": Axis(["baseline", "batching"]),
        "senders": Axis(list(_multicast.PATTERNS)),
        "nodes": Axis([2, 4, 8, PEAK, 16], full=_multicast.ALL_NODES),
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        **{
            claim: _multicast.average("throughput", BATCHING, BASELINE, senders=senders)
            for senders, claim in MEANS.items()
        },
        "spindle/fig3_peak_throughput": decide.extreme(
            "throughput", "nodes", senders="all", **BATCHING
        ),
        "spindle/fig3_peak_nodes": peak_nodes,
        "spindle/fig3_peak_utilization": _multicast.utilization("batching", senders="all"),
        "spindle/fig3_speedup_16_senders": decide.ratio(
            "throughput", BATCHING, BASELINE, nodes=16, senders="all"
        ),
        "spindle/fig3_scaling_with_senders": grows_with_senders,
        "spindle/fig3_one_sender_declines": decide.trend(
            "throughput", "nodes", "falls", senders="one", **BATCHING
        ),
        "spindle/fig3_rank": ahead_on_average,
    },
    misses={
        "spindle/fig3_all_senders_speedup_avg": _misses.FAST,
        "spindle/fig3_half_senders_speedup_avg": _misses.FAST,
        "spindle/fig3_one_sender_speedup_avg": _misses.ONE,
        "spindle/fig3_peak_throughput": _misses.LINK,
        "spindle/fig3_peak_nodes": _misses.LINK,
        "spindle/fig3_peak_utilization": _misses.LINK,
        "spindle/fig3_speedup_16_senders": _misses.FAST,
    },
)
