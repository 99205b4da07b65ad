"""A sender that waits to fill a batch of fixed size (section 3.2).

Receives and deliveries are batched, and the send predicate waits for so many messages. Batches of 1
never wait. The paper names no sizes; the claims are decided by the smallest that wait. A batch that
cannot be filled, since all slots are in use or the last message is queued, is sent as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decider, Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPPORTUNISTIC = 1
SMALL = (2, 4)  # "very small" batches
MUCH = 2  # times: a smaller factor is no collapse
AHEAD = (
    "the application is ahead of the links, so the ring always has enough for a batch: "
    "opportunistic batches have 6 messages in mean at 4 members and 25 at 16, and a wait for 2 "
    "or 4 is short"
)


def measure(point: Point) -> Any:
    """Measure one size of a batch."""
    batch = point["batch"]
    fixed = 0 if batch == OPPORTUNISTIC else batch
    load = {"preset": "batching", "fixed_batch": fixed}
    return _multicast.measured(_multicast.run(point, point["nodes"], **load))


def much_worse(metric: str, is_lower: bool) -> Decider:
    """Decide whether small batches are worse by a factor of 2 at every number of nodes."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        found = []
        for batch in SMALL:
            fixed, free = {"batch": batch}, {"batch": OPPORTUNISTIC}
            pair = (free, fixed) if is_lower else (fixed, free)
            found += list(_multicast.ratios(data, metric, *pair))
        word = "below" if is_lower else "above"
        text = f"{min(found):.2f} to {max(found):.2f} times {word} opportunistic sending"
        return Decision(min(found) > MUCH, text)

    return decider


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - ranks alone
    """Draw throughput and latency against the size of a batch."""
    fig, (left, right) = figures.new(1, 2)
    names = {n: f"{n} nodes" for n in data.values_of("nodes")}
    _multicast.draw(left, data, names, over="batch", by="nodes")
    _multicast.draw(right, data, names, "latency", "us", over="batch", by="nodes")
    left.set_ylabel("Throughput (GB/s)")
    right.set_ylabel("Median latency (µs)")
    batches = data.values_of("batch")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(batches, ["none" if b == OPPORTUNISTIC else str(b) for b in batches])
        ax.set_xlabel("Messages for which the sender waits")
        _axes.from_zero(ax)
    left.legend()
    return fig


experiment = Experiment(
    id="spindle/sec3_2_fixed_batch",
    title="Sender waits to fill a fixed-size batch",
    profile="spindle",
    axes={
        "batch": Axis([OPPORTUNISTIC, *SMALL, 16], full=[OPPORTUNISTIC, *SMALL, 8, 16, 32, 64]),
        "nodes": Axis([4, 16], full=[2, 4, 8, 16]),
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fixed_batch_throughput_collapse": much_worse("throughput", is_lower=True),
        "spindle/fixed_batch_latency_soars": much_worse("latency", is_lower=False),
    },
    misses={
        "spindle/fixed_batch_throughput_collapse": AHEAD,
        "spindle/fixed_batch_latency_soars": AHEAD,
    },
)
