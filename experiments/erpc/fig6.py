"""Goodput of large requests over 100 Gbps InfiniBand, beside RDMA writes (section 6.4, figure 6).

One client thread has one request under way; the server answers 32 bytes. The text names the peak
and the least share of the writes' goodput, not the lengths of the image's axis. On the three
clusters of table 1, the longest request alone is measured: there the link is the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import _load, _misses
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAST = "cx5_ib100"
CLUSTERS = ("cx3", "cx4", "cx5")
NAMES = {"RDMA_write": "RDMA write", "eRPC": "eRPC"}
SHARE_FROM = 32768  # bytes; the paper's share of the writes holds from here
SATURATED = 0.85  # of the link: goodput without the headers of packets


def measure(point: Point) -> Any:
    """Measure requests one at a time, or a stream of writes, as perftest does."""
    if point["series"] == "eRPC":
        return {"bandwidth": _load.large(point, point["size"])}
    load = workload.VerbsLoad(op="write", size=point["size"], depth=32, batch=8)
    seconds = 2e-3 if point.fabric == "sim" else 0.05
    with point.cluster(nodes=2) as cluster:
        found = cluster.run(load, duration_s=point.duration(seconds, 5 * seconds))
    return {"bandwidth": (found.value("bandwidth"), "byte/s")}


def is_drawn(params: Mapping[str, Any]) -> bool:
    """Keep the longest eRPC request alone on the other clusters."""
    return bool(
        params["profile"] == FAST or (params["series"] == "eRPC" and params["size"] == _load.LARGE)
    )


def least_share(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the least share of the writes' goodput at 32 KiB and more."""
    both = {s: data.series("bandwidth", "size", "Gbps", series=s, profile=FAST) for s in NAMES}
    shares = {
        int(size): float(both["eRPC"][size] / both["RDMA_write"][size])
        for size in both["eRPC"].index
        if size >= SHARE_FROM
    }
    worst = min(shares, key=lambda size: shares[size])
    return Decision(None, shares[worst], f"at {worst} B")


def writes_ahead(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether writes have the higher goodput at every length."""
    both = {s: data.series("bandwidth", "size", "Gbps", series=s, profile=FAST) for s in NAMES}
    ratios = both["eRPC"] / both["RDMA_write"]
    return Decision(
        bool((ratios < 1).all()), f"{ratios.min():.2f} to {ratios.max():.2f} times the writes"
    )


def longest(data: Data, claim: Claim) -> float:  # noqa: ARG001 - a decider's signature
    """Return the longest request that ran, in the claim's MB."""
    return float(data.series("bandwidth", "size", series="eRPC", profile=FAST).index.max()) / 1e6


def bound_by_links(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the longest requests fill the links of the three clusters."""
    shares = {}
    for cluster in CLUSTERS:
        link = Profile.load(cluster).values()["link.rate_gbps"]
        found = data.value("bandwidth", "Gbps", series="eRPC", profile=cluster, size=_load.LARGE)
        shares[cluster] = found / link
    text = ", ".join(f"{c.upper()} {share:.0%}" for c, share in shares.items())
    return Decision(all(s >= SATURATED for s in shares.values()), f"{text} of the link's rate")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both goodputs on the fast pair; the paper's text gives only eRPC's peak."""
    fig, ax = figures.new()
    for number, (series, name) in enumerate(NAMES.items()):
        figures.line(
            ax,
            data,
            "bandwidth",
            "size",
            unit="Gbps",
            label=name,
            first=number,
            series=series,
            profile=FAST,
        )
    peak = data.series("bandwidth", "size", series="eRPC", profile=FAST).index[-1]
    figures.overlay(
        ax, [(claims["erpc/f6_erpc_peak"], peak)], unit="Gbps", names={"eRPC": "eRPC's peak"}
    )
    if data.fabric == "sim":
        link = Profile.load(FAST).values()["link.rate_gbps"]
        ax.axhline(link, color="black", linewidth=1, linestyle="--", label=f"link, {link:g} Gbps")
    ax.set_xscale("log", base=2)
    ax.set(xlabel="Request size (B)", ylabel="Goodput (Gbps)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/fig6",
    title="Large-transfer throughput over 100 Gbps InfiniBand",
    profile=FAST,
    axes={
        "series": Axis(list(NAMES)),
        "profile": Axis([FAST, *CLUSTERS]),
        "size": Axis(
            [512, 4096, 32768, 1 << 20, 8 << 20], full=[2**n for n in range(9, 24)], unit="B"
        ),
    },
    where=is_drawn,
    measure=measure,
    figure=figure,
    decides={
        "erpc/f6_link": decide.profile("link.rate_gbps"),
        "erpc/f6_erpc_peak": decide.extreme("bandwidth", "size", series="eRPC", profile=FAST),
        "erpc/f6_ratio_to_rdma": least_share,
        "erpc/f6_rank": writes_ahead,
        "erpc/f6_max_request": decide.by_construction(longest, "the experiment sends this length"),
        "erpc/f6_default_clusters_network_bound": bound_by_links,
    },
    misses={
        "erpc/f6_erpc_peak": _misses.COPIES,
        "erpc/f6_ratio_to_rdma": "one request at a time: 7.4 us for 32 KiB, of which the link "
        "takes 2.6. The writes overlap, as perftest's do, and fill the link. The claim leaves "
        "3.8 us. With ten instructions per cycle a request takes 5.9 us",
        "erpc/f6_default_clusters_network_bound": _misses.COPIES,
    },
)
