"""Shares of packets that skip rate control against the use of a link (section 5.2.2).

The optimizations of congestion control pay because most links are idle most of the time. The paper
quotes two studies of Facebook's datacenters for that; no experiment here can repeat them. This one
shows the consequence: ten clients load one server's link with requests of growing length, one
request each, and the packets that skip the rate update and the rate limiter are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments._needs import Undecidable, each
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLIENTS = 10
IDLE = 10  # percent of a link's rate: the quoted studies' bound of an idle link
NAMES = {
    "skip_update": "packets without a rate update",
    "skip_limiter": "packets without the rate limiter",
    "link_use": "goodput, of the link's rate",
}


def measure(point: Point) -> Any:
    """Measure one length of requests."""
    result = _load.run(
        point,
        1 + CLIENTS,
        point.duration(2e-3, 20e-3),
        pattern="incast",
        request=point["request"],
        warmup_ns=_load.LARGE_WARMUP_NS,
    )
    sent = sum(s.value for s in result.samples if s.metric == "packets_sent" and s.node > 0)
    link = Profile.load(point.profile, point.overrides).values()["link.rate_gbps"] / 8 * 1e9
    return {
        "link_use": (result.value("rate") * point["request"] / link, "fraction"),
        "skip_update": (1 - result.value("rate_updates") / sent, "fraction"),
        "skip_limiter": (1 - result.value("paced_packets") / sent, "fraction"),
    }


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the shares and the link's use against the length of requests."""
    fig, ax = figures.new()
    for number, (metric, name) in enumerate(NAMES.items()):
        share = 100 * data.series(metric, "request")
        ax.plot(share.index.to_list(), share.to_list(), label=name, **figures.style_of(number))
    quoted = claims["erpc/fb_tor_util_25us"].number or 0
    label = f"paper: {quoted:g} % of links (quoted)"
    ax.axhspan(0, IDLE, color="0.85", zorder=0, label=label)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="Request size (B)", ylabel="Share (%)", ylim=(0, 106))
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec5_2_link_utilization",
    title="Packets that skip rate control against the use of a link",
    profile="cx4",
    axes={
        "request": Axis(
            [32, 256, 1024, 4096, 32768, 131072],
            full=[2**n for n in range(5, 20)],
            unit="B",
        )
    },
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no link to share",
        "verbs": "needs eleven nodes of the CX4 cluster",
    },
    decides=each(
        ["erpc/fb_link_util_1min", "erpc/fb_tor_util_25us"],
        Undecidable("a measurement of Facebook's datacenters, which it cites"),
    ),
)
