"""What a NIC keeps for eRPC against the number of nodes (section 4.1.1, appendix A).

Each thread has one queue pair, whatever the number of its peers. The receive queue grows with the
sessions, but one receive takes 512 packets: the NIC fetches one for as many packets, and keeps few.
Node 0 of a growing cluster counts the receives that its NIC fetches for each packet, and the
contexts that its NIC's cache misses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECEIVES = {"one receive for 512 packets": "on", "one receive for one packet": "off"}
MANY, ONE = RECEIVES
SAME_RATE = 0.1  # of the rate on the fewest nodes


def measure(point: Point) -> Any:
    """Measure one size of the cluster with one kind of receives."""
    settings: dict[str, Any] = {
        **_load.BATCHES,
        "packet_bytes": 320,
        "multi_packet_receives": RECEIVES[point["series"]],
        "warmup_ns": _load.WARMUP_NS,
    }
    load = workload.ErpcLoad(preset="paper", **settings)
    nodes = point["nodes"]
    cluster: Any
    with point.cluster(nodes=nodes) as cluster:
        result = cluster.run(load, duration_s=point.duration(500e-6, 2e-3))
        counters = cluster.counters(0)
    packets = sum(s.value for s in result.samples if s.metric == "packets_received" and s.node == 0)
    return {
        "packets_per_fetch": (packets / max(1, counters["receive_fetches"]), "count"),
        "cache_misses": (float(counters["cache_misses"]), "count"),
        "rate_per_node": (result.value("rate") / nodes, "op/s"),
    }


def fewer_receives(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare how many packets share a receive with the claim, by the profile."""
    nodes = data.values_of("nodes")[-1]
    found = [data.value("packets_per_fetch", series=s, nodes=nodes) for s in RECEIVES]
    strides = Profile.load("cx4").values()["nic.receive_strides"]
    return Decision(None, strides, f"{found[0]:.0f} and {found[1]:.1f} packets for each fetch")


def constant(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the NIC's cache holds all, and the rate stays, as the cluster grows."""
    misses = data.series("cache_misses", "nodes", series=MANY)
    rates = data.series("rate_per_node", "nodes", "Mop/s", series=MANY)
    spread = max(abs(float(r) / float(rates.iloc[0]) - 1) for r in rates)
    return Decision(
        float(misses.max()) == 0 and spread <= SAME_RATE,
        f"{misses.max():.0f} misses, rates within {spread:.0%}, {rates.index[-1]} nodes",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the packets for each fetched receive, and the rate of a node."""
    fig, (left, right) = figures.new(1, 2)
    for ax, metric, unit in ((left, "packets_per_fetch", None), (right, "rate_per_node", "Mop/s")):
        for number, series in enumerate(RECEIVES):
            figures.line(
                ax,
                data,
                metric,
                "nodes",
                unit=unit,
                label=series,
                first=number,
                series=series,
            )
        ax.set_xlabel("Nodes")
        ax.set_xticks(data.values_of("nodes"))
    last = data.values_of("nodes")[-1]
    figures.overlay(
        left, [(claims["erpc/appa_rq_reduction"], last)], names={"eRPC": "packets of a receive"}
    )
    left.set_ylabel("Packets for each fetched receive")
    left.set_yscale("log")
    right.set_ylabel("Requests per node (M/s)")
    _axes.from_zero(right)
    left.legend()
    return fig


experiment = Experiment(
    id="erpc/appendix_a_nic_memory",
    title="What a NIC keeps for eRPC against the number of nodes",
    profile="cx4",
    axes={
        "series": Axis(list(RECEIVES)),
        "nodes": Axis([11, 20, 40], full=[11, 20, 40, 70, 100]),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no NIC",
        "verbs": "NICs do not count the receives that they fetch",
    },
    decides={
        "erpc/appa_mprq_ways": decide.profile("nic.receive_strides"),
        "erpc/appa_rq_reduction": decide.by_construction(
            fewer_receives, "the profile holds the packets of a receive"
        ),
        "erpc/appa_constant_nic_memory": constant,
        "erpc/appa_tx_queue": Undecidable(
            "a constant of the public program; the queue here is longer (transport.h)"
        ),
        "erpc/appa_rx_cq": Undecidable(
            "raw Ethernet receives may overrun their completion queue; datagrams here may not"
        ),
    },
)
