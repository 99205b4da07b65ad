"""Median latency of a 32 B RDMA read on eRPC's three clusters (section 6.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import each, needs, undecidable
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTERS = ("cx3", "cx4", "cx5")


def measure(point: Point) -> Any:
    """Measure two nodes below one switch, one read at a time."""
    load = workload.VerbsLoad(op="read", size=32, mode="latency")
    with point.cluster(nodes=2) as cluster:
        seconds = 300e-6 if point.fabric == "sim" else 0.02
        return cluster.run(load, duration_s=point.duration(seconds, 10 * seconds))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the medians beside the paper's."""
    fig, ax = figures.new()
    clusters = [c for c in CLUSTERS if c in data.values_of("profile")]
    found = [data.value("read_latency_p50", "us", profile=c) for c in clusters]
    figures.bars(ax, [c.upper() for c in clusters], {"RDMA read": found})
    _axes.write_values(ax)
    numbers = [(claims[f"erpc/t2_rdma_{c}"], x) for x, c in enumerate(clusters)]
    figures.overlay(ax, numbers, unit="us", names={"RDMA_read": "RDMA read"})
    ax.set(ylabel="Median latency of 32 B (µs)", ylim=(0, 1.25 * max(found)))
    ax.legend(loc="upper left")
    return fig


experiment = Experiment(
    id="erpc/table2",
    title="Median latency of a 32 B RDMA read on three clusters",
    profile="cx5",
    axes={"profile": Axis(CLUSTERS)},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "this machine is not one of the three clusters; fabric/latency measures it"},
    decides={
        **{f"erpc/t2_rdma_{c}": decide.value("read_latency_p50", profile=c) for c in CLUSTERS},
        **each(
            [
                "erpc/t2_erpc_cx3",
                "erpc/t2_erpc_cx4",
                "erpc/t2_erpc_cx5",
                "erpc/t2_max_gap",
                "erpc/t2_rank",
            ],
            needs("eRPC, which is not built yet"),
        ),
        "erpc/software_latency_belief": undecidable(
            "the statement is an assumption that the paper rejects; no experiment decides it"
        ),
    },
)
