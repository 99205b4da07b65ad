"""Runs of `spindle_multicast` as the paper's section 4 has them, with deciders and figures.

Each sender of the paper sends a million messages. Here it sends 50,000 in a full run, and 300 to
6,400, three windows or more, in a quick one. A quick run of batching has larger batches than a full
one, since the first window leaves as one batch. The paper's counts are of a million messages: they
are compared with counts that are scaled by the number of messages.

A sender posts a write to each other member, so its link carries its messages n-1 times. With S
senders of n members the link bounds the delivered bytes to 12.5 S/(n-1) GB/s: the dotted line of
the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyrdma import Axis, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decider, Decision
from pyrdma.result import Result
from pyrdma.units import convert

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ALL_NODES",
    "BATCHES",
    "FABRICS",
    "FEW_NODES",
    "LINK",
    "MILLION",
    "NAMES",
    "NODES",
    "PATTERNS",
    "SIZE",
    "SMALL",
    "WHY_NOT",
    "WINDOW",
    "at_every",
    "average",
    "bound",
    "by_node",
    "draw",
    "finish",
    "listed",
    "marked_level",
    "measured",
    "messages",
    "per_million",
    "ratios",
    "run",
    "sending",
    "utilization",
    "with_values",
]

SIZE = 10_240  # bytes of a message: the paper's 10 KB
WINDOW = 100
MILLION = 1_000_000  # messages of each sender in the paper
LINK = 12.5  # GB/s, as the paper counts the utilization
SMALL = 8  # most members of a small subgroup; the paper gives no number
ALL_NODES = tuple(range(2, 17))
NODES = Axis([2, 4, 8, 16], full=ALL_NODES)
FEW_NODES = Axis([2, 4, 16], full=ALL_NODES)  # of long sweeps
PATTERNS = {"all": "all senders", "half": "half senders", "one": "one sender"}
NAMES = {
    "baseline": "baseline",
    "batching": "batching",
    "batching+nulls": "batching, nulls",
    "paper": "Spindle",
    "best": "Spindle and ours",
}
"""Presets of `pyrdma.workload.SpindleMulticast`, which are the series of most experiments."""
BATCHES = ("send", "receive", "delivery")
FABRICS = ("sim", "verbs")
WHY_NOT = {"shm": "the nodes' two threads need a core each; see pyrdma bench spindle/"}

Form = Literal["ratio", "change"]


def messages(
    point: Point, nodes: int, least: int = 3 * WINDOW, full: int = 50_000, senders: str = "all"
) -> int:
    """Return the number of messages that each sender sends.

    The members of a quick run deliver 12,800 messages together, or `least` of each sender. Few
    senders send many: their first window leaves as one batch, and the batches shrink for long.
    """
    deliveries = 12_800
    return max(deliveries // (nodes * sending(nodes, senders)), least) if point.quick else full


def run(point: Point, nodes: int, **load: Any) -> Result:
    """Run the paper's multicast, 10 KB messages and 100 slots unless `load` has others."""
    senders = load.get("senders", "all")
    sent = messages(point, nodes, senders=senders)
    settings = {"senders": senders, "messages": sent, **load}
    with point.cluster(nodes=nodes) as cluster:
        return cluster.run(workload.SpindleMulticast(**settings), timeout_s=7200)


def by_node(result: Result, metric: str) -> list[float]:
    """Return a number of each node that recorded it, in their order."""
    found = [s for s in result.samples if s.metric == metric]
    return [s.value for s in sorted(found, key=lambda s: s.node)]


def measured(result: Result) -> dict[str, tuple[float, str]]:
    """Return throughput, median latency, and the mean batches of all nodes.

    The median of a short run is that of a long one; the mean has the run's begin.
    """
    found = {
        "throughput": (result.value("delivered_bandwidth"), "byte/s"),
        "message_rate": (result.value("message_rate"), "op/s"),
        "latency": (result.latency("multicast").percentile(50), "ns"),
    }
    for stage in BATCHES:
        mean = result.value(f"{stage}_batched") / result.value(f"{stage}_batches")
        found[f"{stage}_batch"] = (mean, "messages")
    return found


def per_million(count: float, sent: int) -> float:
    """Scale a count of `sent` messages per sender to the paper's million."""
    return count * MILLION / sent


def sending(nodes: int, senders: str) -> int:
    """Return the number of senders of a pattern; of an odd number, the smaller half sends."""
    return {"all": nodes, "half": max(1, nodes // 2), "one": 1}[senders]


def bound(nodes: int, senders: str = "all") -> float:
    """Return the most GB/s that the senders' links let every member deliver."""
    return LINK * sending(nodes, senders) / (nodes - 1)


# Deciders


def ratios(
    data: Data,
    metric: str,
    of: Mapping[str, Any],
    to: Mapping[str, Any],
    over: str = "nodes",
    **where: Any,
) -> pd.Series:
    """Return the ratio of two series of `metric` by the values of `over` that both have."""
    a, b = (data.series(metric, over, **{**where, **dict(at)}) for at in (of, to))
    both = (a / b).dropna()
    if both.empty:
        raise decide.NotEvaluated(f"the two series have no value of {over} in common")
    return both


def listed(found: Mapping[Any, float] | pd.Series, form: str = "{:.2f}") -> str:
    """Return the values by their keys, as a line."""
    return ", ".join(f"{form.format(value)} at {key}" for key, value in found.items())


def average(
    metric: str,
    of: Mapping[str, Any],
    to: Mapping[str, Any],
    form: Form = "ratio",
    over: str = "nodes",
    **where: Any,
) -> Decider:
    """Compare the mean, over all subgroup sizes, of a ratio (or of a change) with the claim."""

    def decider(data: Data, claim: Claim) -> Decision:
        found = ratios(data, metric, of, to, over, **where) - (form == "change")
        found = found * convert(1, "x", claim.unit)
        first, last = found.index[0], found.index[-1]
        text = f"mean of {len(found)} {over}; {found[first]:.3g} at {first}, {found[last]:.3g} at"
        return Decision(None, float(found.mean()), f"{text} {last}")

    return decider


def at_every(
    metric: str,
    ahead: Mapping[str, Any],
    behind: Mapping[str, Any],
    factor: float = 1.0,
    over: str = "nodes",
    **where: Any,
) -> Decider:
    """Check that `metric` of `ahead` is above `factor` times that of `behind` at every `over`."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        found = ratios(data, metric, ahead, behind, over, **where)
        text = f"{found.min():.3g} (at {found.idxmin()}) to {found.max():.3g} times"
        return Decision(bool(found.min() > factor), text)

    return decider


def utilization(series: str, **where: Any) -> Decider:
    """Compare the highest throughput, in percent of the link, with the claim."""

    def decider(data: Data, claim: Claim) -> Decision:
        found = data.series("throughput", "nodes", "GB/s", series=series, **where)
        share = convert(float(found.max()) / LINK, "x", claim.unit)
        return Decision(None, share, f"{found.max():.2f} GB/s at nodes {found.idxmax()}")

    return decider


# Figures


def draw(
    ax: Any,
    data: Data,
    lines: Mapping[Any, str] | Sequence[str],
    metric: str = "throughput",
    unit: str = "GB/s",
    /,
    *,
    over: str = "nodes",
    by: str = "series",
    first: int = 0,
    **where: Any,
) -> None:
    """Draw a line for each of `lines`, values of `by` with their names, that was measured."""
    names = lines if isinstance(lines, Mapping) else {s: NAMES.get(s, s) for s in lines}
    present = set(data.frame[by])
    for number, (value, name) in enumerate(names.items()):
        if value not in present:
            continue
        chosen = {**where, by: value}
        figures.line(ax, data, metric, over, unit=unit, label=name, first=first + number, **chosen)


def finish(
    ax: Any,
    data: Data,
    label: str = "Throughput (GB/s)",
    senders: str | None = None,
    room: float = 1.0,
) -> None:
    """Label an axis over nodes, from zero, with the link's bound of a pattern.

    `room` is a factor of the height, for a legend above the lines. Panels with a common y axis have
    the height of the highest.
    """
    nodes = [int(n) for n in data.values_of("nodes")]
    together = ax.get_shared_y_axes().get_siblings(ax)
    top = 1.1 * max(float(other.dataLim.y1) for other in together)
    if senders is not None and data.fabric == "sim":
        bounds = [bound(n, senders) for n in nodes]
        style = {"color": "black", "linestyle": (0, (1, 2)), "linewidth": 1.0, "marker": ""}
        ax.plot(nodes, bounds, label="bound of the senders' links", **style)
    ax.set_ylim(0, top * room)
    ax.set_xticks(nodes if len(nodes) < 10 else nodes[::2])
    ax.set(xlabel="Nodes", ylabel=label)


def with_values(names: Iterable[str], values: Iterable[float], form: str = "{:.3g}") -> list[str]:
    """Return names of bars with their heights, which stay clear of the paper's markers."""
    return [f"{name}\n{form.format(value)}" for name, value in zip(names, values, strict=True)]


def marked_level(ax: Any, data: Data, claim: Claim, label: str, number: int = 0) -> None:
    """Draw a number of the paper for all sizes as a black line in the style of `number`."""
    if claim.number is None:
        return
    nodes = data.values_of("nodes")
    style = figures.style_of(number)["linestyle"]
    line = {"color": "black", "linewidth": 0.9, "linestyle": style}
    ax.plot([nodes[0], nodes[-1]], [claim.number] * 2, label=f"paper: {label}", **line)
