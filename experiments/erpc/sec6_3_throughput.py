"""Rate, sessions and retransmissions of a node among 100 (section 6.3): figure 5's runs.

Each request and each response is one packet of 92 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import fig5
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 10  # threads of a node, one per core
ERPC_HEADER, PAYLOAD, PHYSICAL = 16, 32, 24  # bytes; preamble, FCS and gap are not in a packet
OPENED = "the experiment opens these sessions; it holds because they fit"


def packet_bytes() -> float:
    """Return the length of a packet on the wire, as the paper counts it."""
    overhead = Profile.load("cx4").values()["link.datagram_overhead_bytes"]
    return overhead - PHYSICAL + ERPC_HEADER + PAYLOAD


def measure(point: Point) -> Any:
    """Measure one number of threads."""
    found = fig5.load(point, point["threads"])
    rate = found["request_rate_per_node"][0]
    return {
        **found,
        "packets_per_direction": (2 * rate, "op/s"),  # requests and responses
        "wire_bandwidth_per_node": (2 * rate * packet_bytes(), "byte/s"),
    }


def packet_size(data: Data, claim: Claim) -> float:  # noqa: ARG001 - a decider's signature
    """Return the length of a packet by the profile."""
    return packet_bytes()


def per_rack(data: Data, claim: Claim) -> float:  # noqa: ARG001 - a decider's signature
    """Return the nodes of a rack in the experiment."""
    return float(fig5.NODES / 5)


def cluster_wide(data: Data, claim: Claim) -> float:  # noqa: ARG001 - a decider's signature
    """Return the sessions of all nodes, which counts both ends of each."""
    return fig5.NODES * data.value("sessions_per_node", threads=MOST)


def below_line_rate(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a node sends less than its link can."""
    found = data.value("wire_bandwidth_per_node", "Gbps", threads=MOST)
    link = Profile.load("cx4").values()["link.rate_gbps"]
    return Decision(
        found < 0.92 * link, f"{found:.1f} Gbps of {link:g}; 23 achievable in the paper"
    )


def peak_kept(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the rate with the most sessions is within 5 % of the highest."""
    rates = data.series("request_rate_per_node", "threads", "Mop/s")
    if MOST not in rates.index:
        raise decide.NotEvaluated(f"{MOST} threads were not measured")
    last = float(rates[MOST])
    return Decision(last >= 0.95 * float(rates.max()), f"{last:.1f} of {rates.max():.1f} M/s")


def onset(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the most threads up to which nothing was sent again."""
    found = data.series("retransmissions", "threads")
    if MOST not in found.index:
        raise decide.NotEvaluated(f"{MOST} threads were not measured")
    some = [int(t) for t in found.index if found[t] > 0]
    if not some:
        return Decision(False, None, f"nothing was sent again with up to {MOST} threads")
    return Decision(None, float(min(some) - 1), f"first with {min(some)} threads")


def most_retransmissions(data: Data, claim: Claim) -> Decision:
    """Take the highest rate of retransmissions with 3 threads or more."""
    found = data.series("retransmissions", "threads", claim.unit)
    if MOST not in found.index:
        raise decide.NotEvaluated(f"{MOST} threads were not measured")
    above = found[found.index >= 3]
    return Decision(None, float(above.max()), f"at {above.idxmax()} threads")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the rate on top of the link's share, and the retransmissions."""
    fig, (left, right) = figures.new(1, 2)
    figures.line(left, data, "request_rate_per_node", "threads", unit="Mop/s", label="eRPC")
    figures.overlay(
        left, [(claims["erpc/s63_rate_t10"], MOST)], unit="Mop/s", names={"eRPC": "eRPC"}
    )
    link = Profile.load("cx4").values()["link.rate_gbps"]
    most = link * 1e3 / 8 / (packet_bytes() + PHYSICAL) / 2
    left.axhline(most, color="black", linestyle="--", linewidth=1, label="the link's rate")
    left.set(ylabel="Requests per node (M/s)", xlim=(0.5, 10.5))
    _axes.from_zero(left)
    figures.line(right, data, "retransmissions", "threads", unit="op/s", label="eRPC")
    figures.overlay(
        right, [(claims["erpc/s63_retx_max"], MOST)], unit="op/s", names={"eRPC": "below"}
    )
    right.set(ylabel="Retransmissions per node (1/s)", xlim=(0.5, 10.5), ylim=(-50, 2600))
    for ax in (left, right):
        ax.set_xlabel("Threads of each of 100 nodes")
        ax.set_xticks(range(1, 11))
    left.legend()
    right.legend()
    return fig


NO_LOSS = (
    "no queue of a switch overflows: 60 requests of 1,000 threads are 5.5 MB, and a switch holds "
    "12. The paper does not say where its packets were lost"
)

experiment = Experiment(
    id="erpc/sec6_3_throughput",
    title="Rate, sessions and retransmissions of a node among 100",
    profile="cx4",
    axes={"threads": Axis([1, 3, MOST], full=list(range(1, MOST + 1)))},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "100 nodes that poll need a core each",
        "verbs": "needs 100 nodes below five switches",
    },
    decides={
        "erpc/s63_rate_t10": decide.value("request_rate_per_node", threads=MOST),
        "erpc/s63_packet_rate_t10": decide.value("packets_per_direction", threads=MOST),
        "erpc/s63_wire_bw_t10": decide.value("wire_bandwidth_per_node", threads=MOST),
        "erpc/s63_packet_size": decide.by_construction(
            packet_size, "the profile's overhead of a datagram is calibrated by it"
        ),
        "erpc/s63_below_line_rate": below_line_rate,
        "erpc/s63_sessions_formula": decide.by_construction(
            decide.value("sessions_per_node", threads=MOST), OPENED
        ),
        "erpc/session_max_cx4": decide.by_construction(
            decide.value("sessions_per_node", threads=MOST), OPENED
        ),
        "erpc/s63_sessions_headline": decide.by_construction(cluster_wide, OPENED),
        "erpc/s63_peak_kept_at_20000": peak_kept,
        "erpc/s63_retx_onset": onset,
        "erpc/s63_retx_max": most_retransmissions,
        "erpc/cx4_nodes_per_tor": decide.by_construction(
            per_rack, "the experiment has 20 nodes in each of five racks"
        ),
    },
    misses={
        "erpc/s63_retx_onset": NO_LOSS,
        "erpc/s63_retx_max": NO_LOSS,
    },
)
