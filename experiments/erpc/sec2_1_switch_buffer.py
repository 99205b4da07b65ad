"""Round trip and achievable rate of eRPC's main cluster, two tiers (sections 2.1 and 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER_TOR = 1  # nodes below a rack switch, so that two nodes are in two racks


def measure(point: Point) -> Any:
    """Measure two nodes: a 32 B read alone, then a stream of large writes."""
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


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw round trip and goodput for one rack and for two."""
    fig, (left, right) = figures.new(1, 2)
    places = ["one rack", "two racks"]
    figures.bars(left, places, {"32 B read": [data.value("rtt", "us", series=s) for s in places]})
    _axes.write_values(left)
    figures.overlay(
        left, [(claims["erpc/cx4_cross_tor_rtt"], 1)], unit="us", names={"CX4": "round trip"}
    )
    left.set(ylabel="Round trip (µs)", ylim=(0, 7.5))
    goodput = [data.value("bandwidth", "Gbps", series=s) for s in places]
    figures.bars(right, places, {"64 KiB writes": goodput})
    _axes.write_values(right, "{:.1f}")
    figures.overlay(
        right, [(claims["erpc/cx4_achievable_rate"], 0)], unit="Gbps", names={"CX4": "achievable"}
    )
    right.set(ylabel="Goodput (Gbps)", ylim=(0, 32))
    for ax in (left, right):
        ax.legend(loc="upper left")
    return fig


experiment = Experiment(
    id="erpc/sec2_1_switch_buffer",
    title="Round trip and achievable rate of the CX4 cluster",
    profile="cx4",
    axes={"series": Axis(["one rack", "two racks"])},
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
    },
)
