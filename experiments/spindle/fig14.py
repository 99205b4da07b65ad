"""Latency and bandwidth of local memory copies, against the network's (section 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW_KB = 4096


def measure(point: Point) -> Any:
    """Measure one thread of one node."""
    with point.cluster(nodes=1) as cluster:
        seconds = 200e-6 if point.fabric == "sim" else 0.01
        return cluster.run(
            workload.Memcpy(size=point["size"]), duration_s=point.duration(seconds, 10 * seconds)
        )


def shape(data: Data, claim: Claim) -> Decision:
    """Decide by two conditions: below 1 us up to a few KB, a higher cost per byte beyond."""
    latency = data.series("memcpy_latency_p50", "size", claim.unit)
    small = float(latency[latency.index <= FEW_KB].max())
    largest = latency.index[-1]
    growth = float(latency.iloc[-1]) / small
    holds = 0 < small < 1 and growth > largest / FEW_KB
    return Decision(
        holds,
        f"at most {small:.2g} us up to 4 KiB; at {largest // FEW_KB} times that, {growth:.0f} x",
    )


def slower_than_network(data: Data, claim: Claim) -> Decision:
    """Decide by two conditions: large copies are slower than the link, small copies cost little."""
    bandwidth = data.series("bandwidth", "size", claim.unit)
    link = Profile.load("spindle").values()["link.rate_gbps"] / 8
    latency = float(data.series("memcpy_latency_p50", "size", "us").iloc[0])
    large = float(bandwidth.iloc[-1])
    return Decision(
        0 < large < link and 0 < latency < 0.1,
        f"large copies {large:.1f} GB/s, link {link:.1f} GB/s; small copies {latency:.2g} us",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no numbers in the text
    """Draw latency and bandwidth; the paper's text has statements alone for this figure."""
    fig, (left, right) = figures.new(1, 2)
    figures.line(left, data, "memcpy_latency_p50", "size", unit="us", label="memcpy")
    left.set_yscale("log")
    left.set_ylabel("Latency (µs)")
    figures.line(right, data, "bandwidth", "size", unit="GB/s", label="memcpy")
    link = Profile.load("spindle").values()["link.rate_gbps"] / 8
    if data.fabric == "sim":
        right.axhline(
            link, color="black", linewidth=1, linestyle="--", label=f"link, {link:g} GB/s"
        )
    _axes.from_zero(right)
    right.set_ylabel("Bandwidth (GB/s)")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xlabel("Size (B)")
        ax.legend()
    figures.paper_says(left, "low up to a few KB, then worse")
    figures.paper_says(right, "large copies are below the link")
    return fig


experiment = Experiment(
    id="spindle/fig14",
    title="Local memcpy latency and bandwidth",
    profile="spindle",
    axes={
        "size": Axis(
            [1, 64, 1024, 4096, 16384, 65536, 1 << 20],
            full=[2**n for n in range(23)],
            unit="B",
        )
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "shm", "verbs"),
    decides={
        "spindle/cal_memcpy_latency_shape": shape,
        "spindle/cal_memcpy_vs_rdma": slower_than_network,
    },
)
