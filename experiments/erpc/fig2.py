"""How often the NIC reads the host's memory for a packet of a message (figure 2, section 4.2.1).

The first packet's header is beside its data, so that one DMA read fetches both. The headers of
later packets are behind the data. The simulator's NIC counts its reads of payloads: one for each
piece of a request's gather list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import _packets
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "client_payload_dma_reads"
PACKETS = tuple(_packets.MESSAGES)
SHORT, LONG = PACKETS


def measure(point: Point) -> Any:
    """Count the reads for requests of one length, with responses of one packet."""
    return _packets.traffic(point, point["req_pkts"], SHORT)


def first_packet(data: Data, claim: Claim | None = None) -> float:  # noqa: ARG001 - a decider
    """Return the reads for a message of one packet."""
    return data.value(METRIC, req_pkts=SHORT)


def later_packet(data: Data, claim: Claim | None = None) -> float:  # noqa: ARG001 - a decider
    """Return how many reads each packet after the first one adds."""
    return (data.value(METRIC, req_pkts=LONG) - first_packet(data)) / (LONG - SHORT)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the reads for the first and for a later packet, beside the paper's."""
    fig, ax = figures.new()
    reads = [first_packet(data), later_packet(data)]
    figures.bars(ax, ["first packet", "each later packet"], {"eRPC": reads})
    _axes.write_values(ax, "{:.0f}")
    places = ("erpc/dma_reads_first_packet", "erpc/dma_reads_later_packet")
    figures.overlay(
        ax, [(claims[claim], x) for x, claim in enumerate(places)], names={"eRPC": "eRPC"}
    )
    ax.set(ylabel="DMA reads of the NIC for a packet", ylim=(0, 1.5 * max(2.0, *reads)))
    ax.set_yticks([0, 1, 2, 3])
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/fig2",
    title="DMA reads for the packets of a message",
    profile="cx5",
    axes={"req_pkts": Axis(PACKETS)},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no NIC that reads it",
        "verbs": "a NIC tells nobody how often it reads",
    },
    decides={
        "erpc/dma_reads_first_packet": first_packet,
        "erpc/dma_reads_later_packet": later_packet,
    },
)
