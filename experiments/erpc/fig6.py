"""Large RDMA writes over 100 Gbps InfiniBand: the baseline of figure 6 (section 6.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import each, needs
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(point: Point) -> Any:
    """Measure one client with a stream of writes, as perftest does."""
    load = workload.VerbsLoad(op="write", size=point["size"], depth=32, batch=8)
    with point.cluster(nodes=2) as cluster:
        seconds = 2e-3 if point.fabric == "sim" else 0.05
        return cluster.run(load, duration_s=point.duration(seconds, 5 * seconds))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the writes' goodput; the paper's text gives only eRPC's peak."""
    fig, ax = figures.new()
    figures.line(ax, data, "bandwidth", "size", unit="Gbps", label="RDMA write")
    figures.overlay(
        ax,
        [(claims["erpc/f6_erpc_peak"], data.values_of("size")[-1])],
        unit="Gbps",
        names={"eRPC": "eRPC's peak, not built yet"},
    )
    if data.fabric == "sim":
        link = Profile.load("cx5_ib100").values()["link.rate_gbps"]
        ax.axhline(link, color="black", linewidth=1, linestyle="--", label=f"link, {link:g} Gbps")
    ax.set_xscale("log", base=2)
    ax.set(xlabel="Request size (B)", ylabel="Goodput (Gbps)")
    _axes.from_zero(ax)
    ax.legend(loc="lower right")
    return fig


experiment = Experiment(
    id="erpc/fig6",
    title="Large-transfer throughput over 100 Gbps InfiniBand: RDMA writes",
    profile="cx5_ib100",
    axes={
        "size": Axis(
            [512, 4096, 32768, 1 << 20, 8 << 20], full=[2**n for n in range(9, 24)], unit="B"
        )
    },
    measure=measure,
    figure=figure,
    decides={
        "erpc/f6_link": decide.profile("link.rate_gbps"),
        **each(
            [
                "erpc/f6_erpc_peak",
                "erpc/f6_ratio_to_rdma",
                "erpc/f6_rank",
                "erpc/f6_max_request",
                "erpc/f6_default_clusters_network_bound",
            ],
            needs("eRPC, which is not built yet"),
        ),
    },
)
