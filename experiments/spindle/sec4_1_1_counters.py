"""Pushes, the time to post them, and the senders' waits, with 16 senders (section 4.1.1).

The paper does not say what it counts as a request. Here it is a push: the writes of one column, or
of one batch of messages, to all other members (claims file, ambiguities). Counts and times are of
one node, scaled to the paper's million messages of each sender. The measurement of the posts' time
reads the clock in every predicate.
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

NODES = 16
SERIES = ("baseline", "batching", "best")
LONG = 1000  # messages of each sender; the first window of a run has no wait
MUCH = 2  # times: a runtime that is shorter by less is not much smaller
PANELS = {  # unit, claim, label
    "rdma_write_requests": ("million", "counters_writes", "Pushes of a node (M)"),
    "post_time": ("s", "counters_post_time", "Time of posts (s)"),
    "sender_wait_share": ("%", "counters_sender_wait", "Sender's wait (% of runtime)"),
    "runtime": ("s", "", "Runtime (s)"),
}


def measure(point: Point) -> Any:
    """Measure one system; the counts are those of a million messages per sender."""
    sent = _multicast.messages(point, NODES, LONG)
    result = _multicast.run(point, NODES, preset=point["series"], messages=sent, timed=True)
    pushes = result.value("pushes") / NODES
    return {
        "rdma_write_requests": (_multicast.per_million(pushes, sent), "count"),
        "post_time": (_multicast.per_million(result.value("post_time"), sent), "ns"),
        "runtime": (_multicast.per_million(result.value("runtime"), sent), "ns"),
        "sender_wait_share": (result.value("sender_wait_share"), "%"),
    }


def shorter(data: Data, claim: Claim) -> Decision:
    """Decide whether batching takes less than half of the baseline's time."""
    found = [data.value("runtime", claim.unit, series=s) for s in ("baseline", "batching")]
    return Decision(found[0] > MUCH * found[1], f"{found[0]:.0f} to {found[1]:.0f} {claim.unit}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the four numbers beside the paper's."""
    fig, panels = figures.new(1, len(PANELS))
    for ax, (metric, (unit, claim, label)) in zip(panels, PANELS.items(), strict=True):
        found = [data.value(metric, unit, series=series) for series in SERIES]
        figures.bars(ax, _multicast.with_values(SERIES, found), {"simulated": found})
        for x, series in enumerate(SERIES[:2]):
            number = claims[f"spindle/{claim}_{series}"].number if claim else None
            if number is not None:
                _axes.hollow(ax, x, number, "" if x else "paper")
        ax.set_ylabel(label)
        _axes.from_zero(ax)
    panels[0].legend()
    return fig


experiment = Experiment(
    id="spindle/sec4_1_1_counters",
    title="Internal counters for 16 senders, baseline against batching",
    profile="spindle",
    axes={"series": Axis(SERIES)},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        **{
            f"spindle/{claim}_{series}": decide.value(metric, series=series)
            for metric, (_, claim, _) in PANELS.items()
            for series in SERIES[:2]
            if claim
        },
        "spindle/counters_runtime_rank": shorter,
    },
    misses={
        "spindle/counters_writes_baseline": "of 25.7 M pushes 16 are for deliveries, 1 for "
        "messages and 8.7 for receipts, as a receive finds two messages on average. The paper's "
        "18.2 M leave 1.2 for receipts",
        "spindle/counters_writes_batching": _misses.BURSTS,
        "spindle/counters_post_time_baseline": "a push of 15 writes takes 2.0 us here and 3.6 "
        "in the paper (64.84 s of 18.2 M): 0.13 and 0.24 us a write. There are 1.4 times as "
        "many pushes",
        "spindle/counters_post_time_batching": "a push of 15 writes takes 2.4 us here and 3.9 "
        "in the paper (4.29 s of 1.1 M), and larger send batches need 0.6 times as many pushes",
        "spindle/counters_sender_wait_batching": "the sender waits for the links: with 4 "
        "members it waits 89 % of the time, with links of four times the rate 66 %, and with a "
        "tenth of the instructions per cycle 50 %",
    },
)
