"""The headline results of abstract and introduction.

The 9.7 GB/s are the peak of all senders, at 4 members (section 4.3); there the 1 GB/s of the
baseline are compared. The latency's drop is that of the size where it is largest. A sender that
computes for 100 us after each message tests the robustness to delays. Large messages are 1 MB in
the slots of the baseline; Derecho has another protocol for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE, PAPER = "baseline", "paper"
SYSTEMS = (BASE, PAPER, "best")
PEAK = 4  # members
TENS = 20  # subgroups, one of them active
LARGE, FEW_KB = 1 << 20, 4096
CASES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "continuous": ((*SYSTEMS, "batching"), {}),
    "delayed": (SYSTEMS, {"delayed": "one", "delay_ns": 100_000}),
    "subgroups": (("batching", "best"), {"subgroups": TENS}),
    "few KB": ((BASE,), {"max_message": FEW_KB}),
    "large": ((BASE,), {"max_message": LARGE, "window": 10}),
}
"""By case: the series that have it, and the load."""
EFFICIENT = 0.5  # of the bound of the links


def where(params: Mapping[str, Any]) -> bool:
    """Keep the cases of each series; those with other sizes have the members of the peak."""
    if params["series"] not in CASES[params["case"]][0]:
        return False
    return params["case"] not in ("few KB", "large") or params["nodes"] == PEAK


def measure(point: Point) -> Any:
    """Measure one case of one system."""
    nodes, load = point["nodes"], dict(CASES[point["case"]][1])
    if point["case"] == "large":
        load["messages"] = 50 if point.quick else 500  # windows of 10
    return _multicast.measured(_multicast.run(point, nodes, preset=point["series"], **load))


def latency_drop(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the largest ratio of the latencies over all sizes."""
    of, to = {"series": BASE}, {"series": PAPER}
    found = _multicast.ratios(data, "latency", of, to, case="continuous")
    return Decision(None, float(found.max()), f"at {found.idxmax()} nodes")


def robust(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a delayed sender leaves a larger share of the throughput, at every size."""
    delayed, usual = {"case": "delayed"}, {"case": "continuous"}
    base, paper = (
        _multicast.ratios(data, "throughput", delayed, usual, series=series)
        for series in (BASE, PAPER)
    )
    text = f"left: {_multicast.listed(paper)}; baseline {_multicast.listed(base)}"
    return Decision(bool((paper > base).all()), text)


def tens_of_subgroups(data: Data, claim: Claim) -> Decision:
    """Decide whether 19 inactive subgroups cost less than the tolerance, on average."""
    many, alone = {"case": "subgroups"}, {"case": "continuous"}
    found = _multicast.ratios(data, "throughput", many, alone, series="batching")
    text = f"{TENS} subgroups leave {found.mean():.2f} of the throughput"
    return Decision(bool(found.mean() >= 1 - claim.tolerance), text)


def large_and_small(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether large messages take half of the links' bound, and a few KB do not."""
    large, small = (
        data.value("throughput", "GB/s", series=BASE, nodes=PEAK, case=case)
        for case in ("large", "few KB")
    )
    most = _multicast.bound(PEAK)
    holds = large > EFFICIENT * most > small
    return Decision(holds, f"1 MB {large:.2f}, 4 KB {small:.2f} of {most:.1f} GB/s")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw throughput, latency and the share that a delayed sender leaves."""
    fig, (left, middle, right) = figures.new(1, 3)
    _multicast.draw(left, data, SYSTEMS, case="continuous")
    numbers = [(claims[f"spindle/head_{name}_bw_10kb"], PEAK) for name in ("baseline", "spindle")]
    names = {"baseline": "baseline", "spindle_full": "Spindle"}
    figures.overlay(left, numbers, unit="GB/s", names=names)
    _multicast.finish(left, data, senders="all")
    _multicast.draw(middle, data, SYSTEMS, "latency", "us", case="continuous")
    _multicast.finish(middle, data, "Median latency (µs)")
    middle.set_ylim(auto=True)
    middle.relim()
    _axes.logarithmic(middle)
    for number, series in enumerate(SYSTEMS):
        delayed, usual = {"case": "delayed"}, {"case": "continuous"}
        found = 100 * _multicast.ratios(data, "throughput", delayed, usual, series=series)
        style = figures.style_of(number)
        right.plot(list(found.index), list(found), label=_multicast.NAMES[series], **style)
    _multicast.finish(right, data, "Left by a delayed sender (%)")
    figures.legend_below((left, middle, right))
    return fig


experiment = Experiment(
    id="spindle/headline",
    title="Headline results of abstract and introduction",
    profile="spindle",
    axes={
        "series": Axis([*SYSTEMS, "batching"]),
        "case": Axis(list(CASES)),
        "nodes": Axis([2, PEAK, 16], full=_multicast.ALL_NODES),
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/head_baseline_bw_10kb": decide.value(
            "throughput", series=BASE, case="continuous", nodes=PEAK
        ),
        "spindle/head_spindle_bw_10kb": decide.extreme(
            "throughput", "nodes", series=PAPER, case="continuous"
        ),
        "spindle/head_latency_drop": latency_drop,
        "spindle/head_delay_robustness": robust,
        "spindle/head_single_thread_many_subgroups": tens_of_subgroups,
        "spindle/head_baseline_large_vs_small": large_and_small,
    },
    misses={
        "spindle/head_baseline_bw_10kb": _misses.FAST,
        "spindle/head_spindle_bw_10kb": _misses.LINK,
        "spindle/head_latency_drop": _misses.FAST,
    },
)
