"""Throughput of opportunistic batching with inactive subgroups (figure 9).

All nodes are in all subgroups and send in one of them. The baseline, with 1 and with 50 subgroups,
shows the loss without batching; `best` also looks less often at quiet subgroups.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experiments.spindle import _multicast, fig8
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decider, Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "batching"
ENDS = (1, 50)  # subgroups of the other series
MUCH = 0.5  # of the baseline's loss: a loss of more is not much smaller
RISE = 1.01  # of the throughput with fewer subgroups; a smaller rise is none
TURNS = (
    "the links are the limit, and not the time of a turn: with 10 subgroups the send batches "
    "have 1.7 times the messages of 1 subgroup (spindle/sec4_1_3_batch_sizes), and the "
    "throughput stays within 4 %"
)


def where(params: Mapping[str, Any]) -> bool:
    """Keep every number of subgroups of batching, and two numbers of the other series."""
    return params["series"] == PAPER or params["subgroups"] in ENDS


def measure(point: Point) -> Any:
    """Measure one number of subgroups."""
    load = {"preset": point["series"], "subgroups": point["subgroups"]}
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def ahead(more: int, fewer: int) -> Decider:
    """Decide whether more subgroups have more throughput, on average over the sizes."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        of, to = {"subgroups": more}, {"subgroups": fewer}
        found = _multicast.ratios(data, "throughput", of, to, series=PAPER)
        return Decision(bool(found.mean() > 1), f"{found.mean():.3f} times on average")

    return decider


def loss(data: Data, series: str) -> float:
    """Return the mean fraction of the throughput that 49 inactive subgroups take."""
    few, many = ({"subgroups": count} for count in ENDS)
    return 1 - float(_multicast.ratios(data, "throughput", many, few, series=series).mean())


def graceful(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether batching loses less than half of what the baseline loses."""
    found = {series: loss(data, series) for series in (PAPER, "baseline")}
    text = ", ".join(f"{series} {share:.1%}" for series, share in found.items())
    return Decision(found[PAPER] < MUCH * found["baseline"], f"lost at 50 subgroups: {text}")


def not_monotone(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether some step to more subgroups has more throughput and larger batches."""
    best, text = 0.0, ""
    for nodes in data.values_of("nodes"):
        at = {"series": PAPER, "nodes": nodes}
        rates = data.series("throughput", "subgroups", **at)
        batches = data.series("delivery_batch", "subgroups", **at)
        counts = list(rates.index)
        for fewer, more in pairwise(counts):
            rise = float(rates[more] / rates[fewer])
            if batches[more] > batches[fewer] and rise > best:
                best, text = rise, f"from {fewer} to {more} subgroups at {nodes} nodes"
    return Decision(best > RISE, f"{best:.3f} times {text}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - ranks alone
    """Draw the throughput over the sizes, and what each number of subgroups leaves of it."""
    fig, (left, right) = figures.new(1, 2)
    counts = {n: name for n, name in fig8.NAMES.items() if n in data.values_of("subgroups")}
    _multicast.draw(left, data, counts, by="subgroups", series=PAPER)
    _multicast.finish(left, data, senders="all")
    lines = [(PAPER, count, f"{name}") for count, name in counts.items()]
    lines += [(series, 50, f"50, {_multicast.NAMES[series]}") for series in ("baseline", "best")]
    for number, (series, count, name) in enumerate(lines):
        many, alone = {"subgroups": count}, {"subgroups": 1}
        found = _multicast.ratios(data, "throughput", many, alone, series=series)
        right.plot(list(found.index), list(found), label=name, **figures.style_of(number))
    _multicast.finish(right, data, "Throughput / that of 1 subgroup")
    figures.legend_below((left, right))
    return fig


experiment = Experiment(
    id="spindle/fig9",
    title="Inactive subgroups: opportunistic batching",
    profile="spindle",
    axes={
        "series": Axis([PAPER, "baseline", "best"]),
        "subgroups": Axis([1, 2, 5, 10, 50], full=fig8.SUBGROUPS),
        "nodes": _multicast.NODES,
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig9_5_beats_1": ahead(5, 1),
        "spindle/fig9_10_beats_2": ahead(10, 2),
        "spindle/fig9_50_graceful": graceful,
        "spindle/fig9_not_monotone": not_monotone,
    },
    misses={
        "spindle/fig9_5_beats_1": TURNS,
        "spindle/fig9_10_beats_2": TURNS,
    },
)
