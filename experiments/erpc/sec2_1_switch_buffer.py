"""Round trip, achievable rate and buffer of eRPC's main cluster (sections 2.1 and 6.3).

The bandwidth-delay product is much smaller than a switch's buffer, so a switch holds one product of
many flows. That is arithmetic. The incasts test it: flows of one server, without congestion
control, have one product (19 packets of 1 kB) or 32 times as much under way, and the switches count
the packets that they drop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable, each
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER_TOR = 1  # nodes below a rack switch, so that two nodes are in two racks
PRODUCT = 19  # packets of 1 kB: 25 Gbps times 6 us
TARGET = 50  # flows, the paper's aim
INCASTS = {  # flows, packets of each under way
    "50 flows, 1 BDP": (50, PRODUCT),
    "100 flows, 1 BDP": (100, PRODUCT),
    "50 flows, 32 BDP": (50, 32 * PRODUCT),
}


def incast(point: Point) -> dict[str, tuple[float, str]]:
    """Measure the packets that the switches drop for each thousand to the server."""
    flows, window = INCASTS[point["series"]]
    load = workload.ErpcLoad(
        preset="paper",
        pattern="incast",
        congestion_control="none",
        credits=window,
        request=_load.MIB,
        warmup_ns=_load.WARMUP_NS,
    )
    overrides = _load.five_racks(flows + 1)
    with point.cluster(nodes=flows + 1, overrides=overrides) as cluster:
        before = dropped(cluster)
        result = cluster.run(load, duration_s=point.duration(10e-3, 50e-3))
        lost = dropped(cluster) - before
    sent = sum(s.value for s in result.samples if s.metric == "packets_sent" and s.node > 0)
    return {"drop_share": (lost / sent, "fraction")}


def dropped(cluster: Any) -> int:
    """Return the packets that all switches have dropped."""
    return sum(tier["dropped"] for tier in cluster.network_counters().values())


def measure(point: Point) -> Any:
    """Measure two nodes: a 32 B read alone, then a stream of large writes; or an incast."""
    if point["series"] in INCASTS:
        return incast(point)
    racks = {"topology.nodes_per_tor": PER_TOR} if point["series"] == "two racks" else {}
    with point.cluster(nodes=2, overrides=racks) as cluster:
        alone = cluster.run(
            workload.VerbsLoad(op="read", size=32, mode="latency"),
            duration_s=point.duration(300e-6, 3e-3),
        )
        stream = cluster.run(
            workload.VerbsLoad(op="write", size=65536, depth=16),
            duration_s=point.duration(1e-3, 5e-3),
        )
    return {
        "rtt": (alone.latency("read").percentile(50), "ns"),
        "bandwidth": (stream.value("bandwidth"), "byte/s"),
    }


def product(data: Data, claim: Claim) -> Decision:
    """Compare link rate times round trip with the paper's bandwidth-delay product."""
    rate = Profile.load("cx4").values()["link.rate_gbps"]
    rtt = data.value("rtt", "us", series="two racks")
    return Decision(None, rate * rtt / 8, f"{rate:g} Gbps x {rtt:.2f} us, in {claim.unit}")


def oversubscription(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare a rack's downlinks with its uplinks, from the profile."""
    values = Profile.load("cx4").values()
    down = values["topology.nodes_per_tor"] * values["link.rate_gbps"]
    up = values["topology.uplinks_per_tor"] * values["topology.uplink_gbps"]
    return Decision(None, down / up, f"{down:g} Gbps down, {up:g} Gbps up")


def incast_degree(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare how many bandwidth-delay products a switch's buffer holds with the claim."""
    values = Profile.load("cx4").values()
    product_bytes = values["link.rate_gbps"] / 8 * data.value("rtt", "ns", series="two racks")
    return Decision(
        None, values["switch.buffer_bytes"] / product_bytes, f"one product is {product_bytes:.0f} B"
    )


def target_reached(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether no packet of the aimed number of flows is dropped."""
    share = data.value("drop_share", series="50 flows, 1 BDP")
    return Decision(share == 0, f"{share:.2%} dropped with {TARGET} flows of one product")


def small_windows_lose_less(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - as above
    """Decide whether drops are rare with one product per flow, and not with many."""
    found = {name: data.value("drop_share", series=name) for name in INCASTS}
    text = ", ".join(f"{name}: {share:.2%}" for name, share in found.items())
    rare = max(found["50 flows, 1 BDP"], found["100 flows, 1 BDP"]) < RARE
    return Decision(rare and found["50 flows, 32 BDP"] > RARE, text)


RARE = 1e-3  # of the packets


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw round trip and goodput for one rack and for two, and the drops of the incasts."""
    fig, (left, right, last) = figures.new(1, 3)
    places = ["one rack", "two racks"]
    figures.bars(left, places, {"32 B read": [data.value("rtt", "us", series=s) for s in places]})
    _axes.write_inside(left)
    figures.overlay(
        left, [(claims["erpc/cx4_cross_tor_rtt"], 1)], unit="us", names={"CX4": "round trip"}
    )
    left.set(ylabel="Round trip (µs)", ylim=(0, 7.5))
    goodput = [data.value("bandwidth", "Gbps", series=s) for s in places]
    figures.bars(right, places, {"64 KiB writes": goodput})
    _axes.write_inside(right, "{:.1f}")
    figures.overlay(
        right, [(claims["erpc/cx4_achievable_rate"], 0)], unit="Gbps", names={"CX4": "achievable"}
    )
    right.set(ylabel="Goodput (Gbps)", ylim=(0, 32))
    for ax in (left, right):
        ax.legend()
    shares = [100 * data.value("drop_share", series=name) for name in INCASTS]
    names = [name.replace(", ", "\n") for name in INCASTS]
    figures.bars(last, names, {"incast, no control": shares})
    _axes.write_values(last)
    last.set(ylabel="Dropped packets (%)", ylim=(0, 1.3 * max(1.0, *shares)))
    last.legend()
    return fig


experiment = Experiment(
    id="erpc/sec2_1_switch_buffer",
    title="Round trip, achievable rate and switch buffer of the CX4 cluster",
    profile="cx4",
    axes={"series": Axis(["one rack", "two racks", *INCASTS])},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={"shm": "shared memory has no switches", "verbs": "needs eRPC's two-tier cluster"},
    decides={
        "erpc/cx4_cross_tor_rtt": decide.value("rtt", series="two racks"),
        "erpc/cx4_bdp": product,
        "erpc/cx4_oversubscription": decide.by_construction(
            oversubscription, "the profile holds the links"
        ),
        "erpc/cx4_achievable_rate": decide.value("bandwidth", series="one rack"),
        "erpc/ideal_incast_degree": decide.by_construction(
            incast_degree, "the profile holds the buffer, and the round trip is calibrated"
        ),
        "erpc/target_incast_degree": target_reached,
        "erpc/bdp_credit_limit_prevents_loss": small_windows_lose_less,
        **each(
            ["erpc/trident2_buffer", "erpc/spectrum2_buffer", "erpc/trident3_buffer"],
            Undecidable("a switch that no testbed has"),
        ),
        **each(
            ["erpc/pfabric_bdp", "erpc/dcqcn_tested_incast", "erpc/timely_tested_incast"],
            Undecidable("a number of another paper, which it cites"),
        ),
        "erpc/cx4_shared_cluster_nodes": Undecidable(
            "the profile holds the 100 nodes that the paper uses"
        ),
        "erpc/ib_cross_tor_rtt": Undecidable("measured on a cluster that the paper does not name"),
    },
)
