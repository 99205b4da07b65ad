"""Latency of small requests on 100 nodes against the threads of a node (section 6.3, figure 5).

Every thread has a session to each thread of the other nodes and sends batches of 3 to random ones,
with 60 requests under way. The paper's sessions to other threads of the same node are left out:
2 of 200 at one thread. The simulator's five racks have 20 nodes each. Short packets keep the
receives of 1,000 threads small; the requests on the wire are the same.

One more series has one request under way, which shows what the 60 cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 100
FULL, ALONE = "60 under way", "1 under way"
PERCENTILES = {"p50": 50.0, "p99": 99.0, "p999": 99.9, "p9999": 99.99}
NAMES = {"p50": "median", "p99": "99th", "p999": "99.9th", "p9999": "99.99th percentile"}
PACKET_BYTES = 152  # the shortest that has room for a message of session management and 32 B
SHORT = {"packet_bytes": PACKET_BYTES, "max_message": 4096}
SPAN = (100e-6, 1e-3)  # of virtual time


def load(point: Point, threads: int, **settings: Any) -> dict[str, tuple[float, str]]:
    """Measure latency, rate and retransmissions of `threads` threads on each node."""
    span = point.duration(*SPAN)
    shape = {**_load.BATCHES, "threads": threads, **SHORT, **settings}
    options = {"overrides": _load.five_racks(NODES)}
    result = _load.run(point, NODES, span, options, **shape)
    latency = result.latency("rpc")
    # A lost packet is sent again after the interval, while the last requests end.
    loaded = span + _load.WARMUP_NS * 1e-9
    return {
        **{f"latency_{key}": (latency.percentile(p), "ns") for key, p in PERCENTILES.items()},
        "request_rate_per_node": (result.value("rate") / NODES, "op/s"),
        "retransmissions": (result.value("retransmissions") / NODES / loaded, "op/s"),
        "sessions_per_node": (2.0 * (NODES - 1) * threads**2, "count"),
    }


def measure(point: Point) -> Any:
    """Measure one number of threads."""
    alone = {"batch": 1, "in_flight": 1} if point["series"] == ALONE else {}
    return load(point, point["threads"], **alone)


def above_alone(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the median with 60 requests under way is above that of one."""
    full, alone = (
        data.value("latency_p50", "us", series=series, threads=1) for series in (FULL, ALONE)
    )
    return Decision(
        full > alone, f"{full:.1f} us, {alone:.1f} us with one request under way on the same paths"
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the percentiles against the threads, with the paper's two numbers."""
    fig, ax = figures.new()
    for number, (key, name) in enumerate(NAMES.items()):
        figures.line(
            ax,
            data,
            f"latency_{key}",
            "threads",
            unit="us",
            label=name,
            first=number,
            series=FULL,
        )
    figures.overlay(ax, [(claims["erpc/f5_p50_t1"], 1)], unit="us", names={"eRPC": "median"})
    figures.overlay(
        ax, [(claims["erpc/f5_p9999_t10"], 10)], unit="us", names={"eRPC": "99.99th"}, first=1
    )
    _axes.logarithmic(ax)
    ax.set(xlabel="Threads of each of 100 nodes", ylabel="Latency (µs)", xlim=(0.5, 10.5))
    ax.set_ylim(5, 3000)
    ax.set_xticks(range(1, 11))
    ax.legend()
    return fig


def is_drawn(params: Mapping[str, Any]) -> bool:
    """Keep one point with one request under way."""
    return bool(params["series"] == FULL or params["threads"] == 1)


experiment = Experiment(
    id="erpc/fig5",
    title="Latency of small requests on 100 nodes against threads per node",
    profile="cx4",
    axes={
        "series": Axis([FULL, ALONE]),
        "threads": Axis([1, 2, 10], full=list(range(1, 11))),
    },
    where=is_drawn,
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "100 nodes that poll need a core each",
        "verbs": "needs 100 nodes below five switches",
    },
    decides={
        "erpc/f5_p50_t1": decide.value("latency_p50", series=FULL, threads=1),
        "erpc/f5_p50_vs_table2": above_alone,
        "erpc/f5_p9999_t10": decide.value("latency_p9999", series=FULL, threads=10),
    },
    misses={
        "erpc/f5_p50_t1": "60 requests of a thread that completes 2.36 M/s are under way for "
        "25.4 us: the rate of figure 4 sets the latency. With ten instructions per cycle the "
        "median is 11.3 us",
    },
)
