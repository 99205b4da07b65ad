"""Median latency of 32 B, an RPC and an RDMA read, on eRPC's three clusters (section 6.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.erpc import _load, _misses
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTERS = ("cx3", "cx4", "cx5")
NAMES = {"RDMA_read": "RDMA read", "eRPC": "eRPC"}
RDMA = {"series": "RDMA_read"}
ERPC = {"series": "eRPC"}


def measure(point: Point) -> Any:
    """Measure two nodes below one switch, one operation at a time."""
    if point["series"] == "eRPC":
        latency = _load.one(point).latency("rpc")
    else:
        seconds = 300e-6 if point.fabric == "sim" else 0.02
        with point.cluster(nodes=2) as cluster:
            load = workload.VerbsLoad(op="read", size=32, mode="latency")
            result = cluster.run(load, duration_s=point.duration(seconds, 10 * seconds))
        latency = result.latency("read")
    return {"latency_p50": (latency.percentile(50), "ns")}


def largest_gap(data: Data, claim: Claim) -> Decision:
    """Compare the largest time that an RPC takes longer than a read."""
    gaps = {
        cluster: data.value("latency_p50", claim.unit, profile=cluster, **ERPC)
        - data.value("latency_p50", claim.unit, profile=cluster, **RDMA)
        for cluster in CLUSTERS
    }
    text = ", ".join(f"{cluster.upper()} {gap:.0f}" for cluster, gap in gaps.items())
    return Decision(None, max(gaps.values()), f"{text} {claim.unit}")


def order(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether reads are faster on every cluster, and the clusters' order for both."""
    found = {
        (series, cluster): data.value("latency_p50", "us", series=series, profile=cluster)
        for series in NAMES
        for cluster in CLUSTERS
    }
    holds = all(found["RDMA_read", c] < found["eRPC", c] for c in CLUSTERS)
    holds = holds and all(found[s, "cx3"] < found[s, "cx5"] < found[s, "cx4"] for s in NAMES)
    return Decision(holds, "; ".join(f"{s} {c} {v:.2f}" for (s, c), v in found.items()) + " us")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the medians beside the paper's."""
    fig, ax = figures.new()
    clusters = [c for c in CLUSTERS if c in data.values_of("profile")]
    found = {
        name: [data.value("latency_p50", "us", series=series, profile=c) for c in clusters]
        for series, name in NAMES.items()
    }
    figures.bars(ax, [c.upper() for c in clusters], found)
    _axes.write_inside(ax)
    numbers = [
        (claims[f"erpc/t2_{key}_{c}"], x + shift)
        for key, shift in (("rdma", -0.2), ("erpc", 0.2))
        for x, c in enumerate(clusters)
    ]
    figures.overlay(ax, numbers, unit="us", names=NAMES)
    ax.set(ylabel="Median latency of 32 B (µs)", ylim=(0, 1.5 * max(found["eRPC"])))
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/table2",
    title="Median latency of a 32 B RPC and of a 32 B RDMA read on three clusters",
    profile="cx5",
    axes={"series": Axis(list(NAMES)), "profile": Axis(CLUSTERS)},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "this machine is not one of the three clusters; fabric/latency measures it"},
    decides={
        **{
            f"erpc/t2_{key}_{c}": decide.value("latency_p50", profile=c, **series)
            for key, series in (("rdma", RDMA), ("erpc", ERPC))
            for c in CLUSTERS
        },
        "erpc/t2_max_gap": largest_gap,
        "erpc/t2_rank": order,
        "erpc/software_latency_belief": Undecidable(
            "the statement is an assumption that the paper rejects; no experiment decides it"
        ),
    },
    misses={
        "erpc/t2_erpc_cx3": _misses.LATENCY,
        "erpc/t2_erpc_cx5": _misses.LATENCY,
        "erpc/t2_max_gap": _misses.LATENCY,
    },
)
