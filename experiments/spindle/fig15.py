"""Throughput when the application copies messages in and out (figure 15).

A sender copies each message from a buffer of its own into the slot, and the upcall of a delivery
copies it out of the ring. The text also names 1 B and 128 B, where all members send.
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

PAPER, COPIES, BEST = "paper", "paper, copies", "best, copies"
NAMES = {PAPER: "Spindle", COPIES: "Spindle, copies", BEST: "Spindle and ours, copies"}
SERIES: dict[str, dict[str, Any]] = {
    PAPER: {"preset": "paper"},
    COPIES: {"preset": "paper", "copy_in": True, "copy_out": True},
    BEST: {"preset": "best", "copy_in": True, "copy_out": True},
}
TINY = (1, 128)
NO_LOSS = 0.05  # of the throughput: a smaller loss is none


def where(params: Mapping[str, Any]) -> bool:
    """Keep small messages where all members send, without `best`."""
    is_usual = params["size"] == _multicast.SIZE
    return bool(is_usual or (params["senders"] == "all" and params["series"] != BEST))


def measure(point: Point) -> Any:
    """Measure one pattern and one size."""
    load = {**SERIES[point["series"]], "senders": point["senders"], "max_message": point["size"]}
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def losses(data: Data, senders: str = "all", size: int = _multicast.SIZE) -> pd.Series:
    """Return the fraction of the throughput that copies take, by nodes."""
    of, to = {"series": COPIES}, {"series": PAPER}
    return 1 - _multicast.ratios(data, "throughput", of, to, senders=senders, size=size)


def with_copies(data: Data, claim: Claim) -> Decision:
    """Compare the mean throughput over the sizes with the claim."""
    at = {"series": COPIES, "senders": "all", "size": _multicast.SIZE}
    found = data.series("throughput", "nodes", claim.unit, **at)
    return Decision(None, float(found.mean()), _multicast.listed(found))


def consistent_decline(data: Data, claim: Claim) -> Decision:
    """Decide whether copies cost, and leave all sizes within the tolerance of their mean."""
    at = {"series": COPIES, "senders": "all", "size": _multicast.SIZE}
    found = data.series("throughput", "nodes", "GB/s", **at)
    apart = float((found / found.mean() - 1).abs().max())
    lost = float(losses(data).mean())
    text = f"lost {lost:.1%} on average; sizes within {apart:.0%} of their mean"
    return Decision(lost > 0 and apart <= claim.tolerance, text)


def slight_decline(data: Data, claim: Claim) -> Decision:
    """Decide whether the mean loss of half of the senders is within the tolerance."""
    lost = float(losses(data, "half").mean())
    return Decision(0 < lost <= claim.tolerance, f"lost {lost:.2%} on average")


def no_decline(senders: str, size: int) -> Any:
    """Decide whether the mean loss is at most 5 %."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        lost = float(losses(data, senders, size).mean())
        return Decision(lost <= NO_LOSS, f"lost {lost:.2%} on average")

    return decider


def less_for_tiny(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether copies of small messages cost less than half of those of 10 KB."""
    found = {size: float(losses(data, size=size).mean()) for size in (*TINY, _multicast.SIZE)}
    holds = all(found[size] < found[_multicast.SIZE] / 2 for size in TINY)
    return Decision(holds, f"lost {_multicast.listed(found, '{:.2%}')} B")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw each pattern with and without copies, and the loss by the size of a message."""
    fig, panels = figures.new(2, 2)
    for ax, (senders, name) in zip(panels.flat, _multicast.PATTERNS.items(), strict=False):
        _multicast.draw(ax, data, NAMES, senders=senders, size=_multicast.SIZE)
        if senders == "all":
            paper = claims["spindle/fig15_all_senders"]
            _multicast.marked_level(ax, data, paper, "with copies", 1)
        _multicast.finish(ax, data, senders=senders)
        ax.set_title(name)
    loss = panels[1][1]
    for number, size in enumerate((*TINY, _multicast.SIZE)):
        found = 100 * losses(data, size=size)
        style = figures.style_of(number + 3)
        loss.plot(list(found.index), list(found), label=f"loss, {size} B", **style)
    nodes = data.values_of("nodes")
    loss.set(xlabel="Nodes", ylabel="Loss by the copies (%)", title="loss, all senders")
    loss.set_xticks(nodes if len(nodes) < 10 else nodes[::2])
    figures.legend_below(list(panels.flat))
    return fig


experiment = Experiment(
    id="spindle/fig15",
    title="Throughput with application memcpy on send and delivery",
    profile="spindle",
    axes={
        "series": Axis(list(SERIES)),
        "senders": Axis(list(_multicast.PATTERNS)),
        "size": Axis([*TINY, _multicast.SIZE], unit="B"),
        "nodes": _multicast.FEW_NODES,
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig15_all_senders": with_copies,
        "spindle/fig15_all_decline": consistent_decline,
        "spindle/fig15_half_decline": slight_decline,
        "spindle/fig15_one_no_decline": no_decline("one", _multicast.SIZE),
        "spindle/memcpy_1b_no_loss": no_decline("all", 1),
        "spindle/memcpy_small_less_overhead": less_for_tiny,
    },
    misses={
        "spindle/fig15_all_senders": _misses.LINK,
        "spindle/fig15_all_decline": _misses.LINK,
    },
)
