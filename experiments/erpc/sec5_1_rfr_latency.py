"""Latency that the client-driven protocol adds to long responses (section 5.1).

After the first packet of a response the client asks for each further one, up to its credits at
once. An ideal server would send all packets at once. The experiment has no such server, but the
mirror image: a request of as many packets, which the client sends at once and the server answers
with one packet. The same bytes cross the same links in the other direction. The difference of the
two latencies is what the protocol adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKET_BYTES, HEADER_ROOM = 1024, 24
PAYLOAD = PACKET_BYTES - HEADER_ROOM
PROTOCOL, IDEAL = "long response", "ideal: long request"
FROM = 4  # packets; the paper's share holds from here


def measure(point: Point) -> Any:
    """Measure one RPC at a time of which the response, or the request, has several packets."""
    longer = point["packets"] * PAYLOAD
    field = "response" if point["series"] == PROTOCOL else "request"
    result = _load.one(point, packet_bytes=PACKET_BYTES, **{field: longer})
    return {"latency_p50": (result.latency("rpc").percentile(50), "ns")}


def both(data: Data) -> tuple[Any, Any]:
    """Return the latencies by packets, of the protocol and of the ideal."""
    found = [data.series("latency_p50", "packets", "us", series=s) for s in (PROTOCOL, IDEAL)]
    return found[0], found[1]


def added_round_trips(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the most that the protocol adds, in round trips of a full packet."""
    protocol, ideal = both(data)
    added = (protocol - ideal) / float(protocol.loc[1])
    at = added.idxmax()
    return Decision(
        None, float(added[at]), f"at {at} packets; a round trip is {protocol[1]:.2f} us"
    )


def added_share(data: Data, claim: Claim) -> Decision:
    """Take the most that the protocol adds to long responses, in percent."""
    protocol, ideal = both(data)
    share = (protocol / ideal - 1)[protocol.index >= FROM] * 100
    at = share.idxmax()
    return Decision(None, float(share[at]), f"at {at} packets, in {claim.unit}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both latencies, and what the protocol adds beside the paper's bound."""
    fig, (left, right) = figures.new(1, 2)
    for number, series in enumerate((PROTOCOL, IDEAL)):
        figures.line(
            left,
            data,
            "latency_p50",
            "packets",
            unit="us",
            label=series,
            first=number,
            series=series,
        )
    left.set_ylabel("Median latency (µs)")
    _axes.from_zero(left)
    protocol, ideal = both(data)
    share = (protocol / ideal - 1) * 100
    right.plot(share.index.to_list(), share.to_list(), label="eRPC, CX4", **figures.style_of(0))
    figures.overlay(
        right,
        [(claims["erpc/rfr_added_latency_pct"], FROM)],
        unit="percent",
        names={"eRPC": "below"},
    )
    right.set_ylabel("Added latency (%)")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xlabel("Packets of the response")
        ax.set_xticks(data.values_of("packets"), [str(n) for n in data.values_of("packets")])
        ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec5_1_rfr_latency",
    title="Latency that asking for the packets of a response adds",
    profile="cx4",
    axes={
        "series": Axis([PROTOCOL, IDEAL]),
        "packets": Axis([1, 2, 4, 8, 16, 32], full=[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]),
    },
    measure=measure,
    figure=figure,
    decides={
        "erpc/rfr_added_latency_max_rtt": added_round_trips,
        "erpc/rfr_added_latency_pct": added_share,
    },
    misses={
        "erpc/rfr_added_latency_max_rtt": "the requests for packets also take time of both CPUs, "
        "which the ideal does not",
        "erpc/rfr_added_latency_pct": "a link of 25 Gbps sends four packets in a fraction of the "
        "round trip that the protocol adds",
    },
)
