"""Throughput of batching against the slots of each sender (figure 6).

All members send. A run lasts for three windows or more, since the first one needs no free slot. One
more series sends in fixed batches of 200 messages, nearly 2 MB, from 500 slots: it decides whether
so large a write is what hurts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

BATCHING, LARGE = "batching", "fixed batches of 200"
BASELINE = {"series": "baseline", "window": _multicast.WINDOW}
WINDOWS = [5, 20, 100, 200, 500, 1000]
LARGE_BATCH, LARGE_WINDOW, LARGE_NODES = 200, 500, 16
SERIES: dict[str, dict[str, Any]] = {
    "baseline": {"preset": "baseline"},
    BATCHING: {"preset": "batching"},
    LARGE: {"preset": "batching", "fixed_batch": LARGE_BATCH},
}
AT_PEAK = 0.95  # of the highest throughput: still no decline


def where(params: Mapping[str, Any]) -> bool:
    """Keep every window of batching, and one of the other series; large batches at 16 nodes."""
    if params["series"] == LARGE and params["nodes"] != LARGE_NODES:
        return False
    wanted = {"baseline": _multicast.WINDOW, LARGE: LARGE_WINDOW}
    return bool(params["window"] == wanted.get(params["series"], params["window"]))


def measure(point: Point) -> Any:
    """Measure one window."""
    nodes, window = point["nodes"], point["window"]
    sent = max(_multicast.messages(point, nodes), 3 * window)
    load = {**SERIES[point["series"]], "window": window, "messages": sent}
    return _multicast.measured(_multicast.run(point, nodes, **load))


def means(data: Data) -> pd.Series:
    """Return the mean throughput over all sizes, by window."""
    rows = data.select("throughput", series=BATCHING)
    return rows.groupby("window")["value"].mean().sort_index() / 1e9


def best_window(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the window with the highest mean throughput."""
    found = means(data)
    return Decision(None, float(found.idxmax()), f"GB/s: {_multicast.listed(found)}")


def between(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a window between the smallest and the largest is the best."""
    found = means(data)
    inside = found.iloc[1:-1].max()
    holds = inside > found.iloc[0] and inside > found.iloc[-1]
    return Decision(bool(holds), f"GB/s: {_multicast.listed(found)}")


def declines(window: int) -> Any:
    """Take the most members with a throughput near the highest; more members have less."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        found = data.series("throughput", "nodes", "GB/s", series=BATCHING, window=window)
        near = found[found >= AT_PEAK * found.max()]
        last, text = near.index[-1], _multicast.listed(found)
        if last == found.index[-1]:
            return Decision(False, float(last), f"no decline up to {last} nodes; GB/s: {text}")
        return Decision(None, float(last), f"GB/s: {text}")

    return decider


def large_writes(data: Data, claim: Claim) -> Decision:
    """Decide whether batches of 200 have less throughput than 100 slots, at 16 nodes."""
    at: dict[str, Any] = {"nodes": LARGE_NODES, "unit": "GB/s"}
    large = data.value("throughput", series=LARGE, window=LARGE_WINDOW, **at)
    usual = data.value("throughput", series=BATCHING, window=_multicast.WINDOW, **at)
    text = f"{large:.2f} to {usual:.2f} GB/s at {LARGE_NODES} nodes"
    return Decision(large < (1 - claim.tolerance) * usual, text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the throughput of each window over the sizes, and relative to the baseline."""
    fig, (left, right) = figures.new(1, 2)
    windows = [w for w in WINDOWS if w in data.values_of("window")]
    names = {w: f"{w} slots" for w in windows}
    _multicast.draw(left, data, names, by="window", series=BATCHING)
    _multicast.draw(left, data, {"baseline": "baseline, 100 slots"}, first=len(names))
    large = {LARGE: f"{LARGE}, {LARGE_WINDOW} slots"}
    _multicast.draw(left, data, large, first=len(names) + 1)
    _multicast.finish(left, data, senders="all")
    for number, window in enumerate(windows):
        to = {"series": BATCHING, "window": window}
        found = _multicast.ratios(data, "throughput", to, BASELINE)
        style = figures.style_of(number)
        right.plot(list(found.index), list(found), label=names[window], **style)
    mean = claims["spindle/fig6_window5_speedup"]
    _multicast.marked_level(right, data, mean, "mean, 5 slots")
    _multicast.finish(right, data, "Throughput / baseline")
    figures.legend_below((left, right))
    return fig


experiment = Experiment(
    id="spindle/fig6",
    title="Effect of the ring-buffer window size",
    profile="spindle",
    axes={
        "series": Axis(list(SERIES)),
        "window": Axis([5, 100, 500, 1000], full=WINDOWS, unit="slots"),
        "nodes": Axis([2, 8, 10, 16], full=_multicast.ALL_NODES),
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig6_window5_speedup": _multicast.average(
            "throughput", {"series": BATCHING, "window": 5}, BASELINE
        ),
        "spindle/fig6_best_window": best_window,
        "spindle/fig6_window500_decline": declines(500),
        "spindle/fig6_window1000_decline": declines(1000),
        "spindle/fig6_large_batch_write": large_writes,
        "spindle/fig6_small_window_trend": between,
    },
    misses={
        "spindle/fig6_window5_speedup": _misses.FAST,
        "spindle/fig6_best_window": "more slots cost nothing here: a receiver looks at one "
        "counter of each sender (native/systems/spindle/README.md, Decisions), not at slots. "
        "500 slots have 8 % more throughput than 100",
        "spindle/fig6_window500_decline": _misses.LINK,
        "spindle/fig6_window1000_decline": _misses.LINK,
        "spindle/fig6_large_batch_write": "the links are the limit, and a write of 2 MB keeps "
        "its link busy for 164 us. With 500 slots two such batches are under way, and 10.3 GB/s "
        "are above the 9.2 of 100 slots",
    },
)
