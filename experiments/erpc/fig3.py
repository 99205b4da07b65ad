"""The packets of an RPC with two credits (figure 3, section 5.1).

The client's packets are the pieces of the request, and one request for each piece of the response
after the first (RFR). The server's are the pieces of the response, and one credit return for each
piece of the request but the last (CR). The NICs count packets and bytes on the wire. Requests and
responses of one and of three packets give the four kinds by their differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.erpc import _packets
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKETS = tuple(_packets.MESSAGES)
SHORT, LONG = PACKETS
ONE: dict[str, Any] = {"req_pkts": SHORT, "resp_pkts": SHORT}
THREE: dict[str, Any] = {"req_pkts": LONG, "resp_pkts": LONG}
PROFILE = "cx5"


def measure(point: Point) -> Any:
    """Count the packets of one RPC at both ends."""
    return _packets.traffic(point, point["req_pkts"], point["resp_pkts"])


def requests_for_response(data: Data, metric: str = "packets") -> float:
    """Return what the client sends more for a response of three packets than for a short one."""
    return sum(
        sign * data.value(f"client_{metric}", req_pkts=LONG, resp_pkts=packets)
        for packets, sign in ((LONG, 1), (SHORT, -1))
    )


def credit_returns(data: Data, metric: str = "packets") -> float:
    """Return what the server sends more for a request of three packets than for a short one."""
    return sum(
        sign * data.value(f"server_{metric}", req_pkts=packets, resp_pkts=LONG)
        for packets, sign in ((LONG, 1), (SHORT, -1))
    )


def each_direction(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the packets of the client with the claim, if the server sends as many."""
    sent = [data.value(f"{end}_packets", **THREE) for end in _packets.ENDS]
    if sent[0] != sent[1]:
        return Decision(False, sent[0], f"and {sent[1]:g} of the server")
    return Decision(None, sent[0], "client and server")


def size(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Return the bytes of a CR and of an RFR behind the datagram's own headers."""
    overhead = Profile.load(PROFILE).values()["link.datagram_overhead_bytes"]
    found = {
        name: bytes_of(data, "wire_bytes") / bytes_of(data) - overhead
        for name, bytes_of in (("CR", credit_returns), ("RFR", requests_for_response))
    }
    text = ", ".join(f"{name} {value:g} B" for name, value in found.items())
    return Decision(None, max(found.values()), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the packets of both examples by kind, beside the paper's totals."""
    fig, ax = figures.new()
    rfr, cr = requests_for_response(data), credit_returns(data)
    small = [data.value(f"{end}_packets", **ONE) for end in _packets.ENDS]
    long = [data.value(f"{end}_packets", **THREE) for end in _packets.ENDS]
    names = [f"{end}\n{n} + {n} packets" for n in PACKETS for end in _packets.ENDS]
    kinds = {
        "request": [small[0], 0, long[0] - rfr, 0],
        "request for response (RFR)": [0, 0, rfr, 0],
        "response": [0, small[1], 0, long[1] - cr],
        "credit return (CR)": [0, 0, 0, cr],
    }
    figures.bars(ax, names, kinds, stacked=True)
    totals = {
        "erpc/fig3_single_packet_client_pkts": (0,),
        "erpc/fig3_single_packet_server_pkts": (1,),
        "erpc/fig3_multi_total_each_way": (2, 3),
    }
    numbers = [(claims[claim], x) for claim, places in totals.items() for x in places]
    figures.overlay(ax, numbers, names={"eRPC": "all"})
    ax.set(xlabel="Sender; request + response", ylabel="Packets of one RPC", ylim=(0, 8))
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/fig3",
    title="Packets of an RPC with two credits",
    profile=PROFILE,
    axes={"req_pkts": Axis(PACKETS), "resp_pkts": Axis(PACKETS)},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "the counters are those of the simulator's NICs",
        "verbs": "the counters are those of the simulator's NICs",
    },
    decides={
        "erpc/fig3_single_packet_client_pkts": decide.value("client_packets", **ONE),
        "erpc/fig3_single_packet_server_pkts": decide.value("server_packets", **ONE),
        "erpc/fig3_multi_cr_pkts": lambda data, claim: credit_returns(data),  # noqa: ARG005
        "erpc/fig3_multi_rfr_pkts": lambda data, claim: requests_for_response(data),  # noqa: ARG005
        "erpc/fig3_multi_total_each_way": each_direction,
        "erpc/cr_rfr_size": size,
    },
)
