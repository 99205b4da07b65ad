"""The cost of signaled requests and payload fetches in message rate (sections 4.2.1, 4.2.2).

The paper quotes both losses without naming a cluster. Unacknowledged writes of 8 B from one node on
100 Gbps InfiniBand keep only the requester's engine busy.

A flush of the transmit queue waits until the NIC has read all packets in it: the time of one
datagram that completes behind a batch of 16 (section 4.2.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENDS = {
    "inline, unsignaled": (1, 64),
    "inline, signaled": (1, 1),
    "fetched, unsignaled": (0, 64),
}
FLUSH = "flush"
QUEUED = 16  # datagrams in the queue: a batch of eRPC


def flush_time(point: Point) -> dict[str, tuple[float, str]]:
    """Measure one thread that posts a batch and waits until all of it has been read."""
    load = workload.VerbsLoad(
        op="send",
        transport="ud",
        size=48,
        depth=QUEUED,
        batch=QUEUED,
        signal_every=QUEUED,
        refill="empty",
    )
    with point.cluster(nodes=2) as cluster:
        result = cluster.run(load, duration_s=point.duration(100e-6, 1e-3))
    return {"flush_time": (QUEUED / result.value("rate") * 1e9, "ns")}


def measure(point: Point) -> Any:
    """Measure eight threads of one node, or a flush."""
    if point["series"] == FLUSH:
        return flush_time(point)
    inline, signal_every = SENDS[point["series"]]
    load = workload.VerbsLoad(
        op="write",
        transport="uc",
        size=8,
        threads=8,
        depth=256,
        batch=32,
        inline=inline,
        signal_every=signal_every,
    )
    with point.cluster(nodes=2) as cluster:
        return cluster.run(load, duration_s=point.duration(100e-6, 1e-3))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the three rates, and the last two rates by the quoted losses."""
    fig, (ax, right) = figures.new(1, 2, width_ratios=[3, 1])
    rates = [data.value("rate", "Mop/s", series=name) for name in SENDS]
    figures.bars(ax, list(SENDS), {"8 B writes": rates})
    quoted = {1: "erpc/signaled_rate_loss", 2: "erpc/extra_dma_rate_loss"}
    for x, claim in quoted.items():
        left = rates[0] * (1 - (claims[claim].number or 0.0) / 100)
        _axes.hollow(ax, x, left, "paper: rate after the quoted loss" if x == 1 else "_nolegend_")
    ax.set(ylabel="Rate (M requests/s)", ylim=(0, 1.3 * max(rates)))
    _axes.write_inside(ax, "{:.0f}")
    ax.legend()
    flush = data.value("flush_time", "us", series=FLUSH)
    figures.bars(right, ["flush"], {f"{QUEUED} datagrams": [flush]})
    figures.overlay(right, [(claims["erpc/tx_flush_cost"], 0)], unit="us", names={"eRPC": "about"})
    right.set(ylabel="Time (µs)", ylim=(0, 1.5 * max(2.0, flush)))
    _axes.write_inside(right)
    right.legend()
    return fig


experiment = Experiment(
    id="erpc/sec4_2_dma_costs",
    title="Cost of signaled requests and of payload fetches",
    profile="cx5_ib100",
    axes={"series": Axis([*SENDS, FLUSH])},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "shared memory has neither a NIC's engine nor PCIe"},
    decides={
        "erpc/signaled_rate_loss": decide.ratio(
            "rate", {"series": "inline, signaled"}, {"series": "inline, unsignaled"}, "loss"
        ),
        "erpc/extra_dma_rate_loss": decide.ratio(
            "rate", {"series": "fetched, unsignaled"}, {"series": "inline, unsignaled"}, "loss"
        ),
        "erpc/tx_flush_cost": decide.value("flush_time", series=FLUSH),
    },
    misses={
        "erpc/extra_dma_rate_loss": "the NIC reads the request (70 B with its header) and then the "
        "payload (32 B) over PCIe 3.0 x16, which bounds the rate at 142 M/s",
    },
)
