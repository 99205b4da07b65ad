"""A late sender holds the others back, unless it sends nulls (figure 2).

Three nodes send, and the last one computes for a millisecond after each message. The first messages
of all nodes leave at once, so they are delivered at once. Then the others fill their slots, and
wait. The paper's late sender is the second of three; in the second round the order is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 3
DELAY_NS = 1_000_000
SERIES: dict[str, tuple[str, dict[str, str]]] = {
    "baseline": ("baseline", {"preset": "baseline"}),
    "nulls": ("baseline,\nnulls", {"preset": "baseline", "null_sends": "on"}),
    "paper": ("Spindle", {"preset": "paper"}),
    "best": ("Spindle\nand ours", {"preset": "best"}),
}


def measure(point: Point) -> Any:
    """Measure one system with a late sender."""
    late = {"delayed": "one", "delay_ns": DELAY_NS}
    sent = (3 if point.quick else 10) * _multicast.WINDOW
    load = {**SERIES[point["series"]][1], **late, "messages": sent}
    result = _multicast.run(point, NODES, **load)
    found = _multicast.measured(result)
    first = result.latency("multicast").percentile(0)
    per_delay = found["message_rate"][0] * DELAY_NS * 1e-9
    return {
        **found,
        "first_latency": (first, "ns"),
        "messages_per_delay": (per_delay, "count"),
        "sender_wait_share": (result.value("sender_wait_share"), "%"),
    }


def stalls(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide by four conditions.

    The first message is delivered at once, and later ones wait for the late sender. The others
    deliver one round per delay, and their senders wait. Nulls end that.
    """
    at = {"series": "baseline"}
    first, later = (data.value(m, "ns", **at) for m in ("first_latency", "latency"))
    rounds = data.value("messages_per_delay", **at) / NODES
    wait = data.value("sender_wait_share", **at)
    freed = data.value("messages_per_delay", series="nulls") / NODES
    holds = first < DELAY_NS / 10 and later > DELAY_NS and rounds < 1.1 and wait > 90
    text = (
        f"first message {first / 1e3:.0f} us, median {later / 1e6:.0f} ms, {rounds:.2f} rounds a "
        f"delay, sender waits {wait:.0f} %; with nulls {freed:.0f} rounds"
    )
    return Decision(holds and freed > 10 * rounds, text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no numbers
    """Draw the messages that a delay lets through, and the latency of first and later ones."""
    fig, (left, right) = figures.new(1, 2)
    names = [name for name, _ in SERIES.values()]
    rates = [data.value("messages_per_delay", series=series) for series in SERIES]
    figures.bars(left, names, {"delivered": rates}, values="{:,.0f}", log=True)
    left.set_ylabel("Messages per delay of 1 ms")
    latencies = {
        label: [data.value(metric, "us", series=series) for series in SERIES]
        for metric, label in (("first_latency", "first message"), ("latency", "median"))
    }
    figures.bars(right, names, latencies, values="{:,.0f}", log=True)
    right.set_ylabel("Latency (µs)")
    right.legend()
    _axes.logarithmic(left, right)
    left.set_ylim(top=3 * max(rates))
    right.set_ylim(top=5 * max(latencies["median"]))
    return fig


experiment = Experiment(
    id="spindle/fig2",
    title="Delivery stall caused by a late sender",
    profile="spindle",
    axes={"series": Axis(list(SERIES))},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig2_stall_without_nulls": decide.by_construction(
            stalls, "messages are delivered in rounds, and one sender is made late"
        ),
    },
)
