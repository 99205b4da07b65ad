"""Gets of an ordered store with scans in worker threads, and in dispatch threads (section 7.2).

The load is that of `sec7_2_masstree` with two requests of a client thread under way. Without
workers all 16 threads of the server dispatch, and a get waits behind a scan of its thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IN_FLIGHT = 2
NAMES = {_store.WORKERS: "14 dispatch, 2 workers", _store.DISPATCH_ONLY: "16 dispatch"}
METRICS = {"get_latency_p50": "median", "get_latency_p99": "99th percentile"}
DISPATCH = {"series": _store.DISPATCH_ONLY}
WORKERS = {"series": _store.WORKERS}


def measure(point: Point) -> Any:
    """Measure one split of the server's threads."""
    return _store.measure(point, point["series"], IN_FLIGHT)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw median and tail of both splits, beside the paper's tails."""
    fig, ax = figures.new()
    found = {
        name: [data.value(metric, "us", series=series) for metric in METRICS]
        for series, name in NAMES.items()
    }
    figures.bars(ax, list(METRICS.values()), found)
    numbers = [
        (claims["erpc/masstree_get_p99"], 0.8),
        (claims["erpc/masstree_dispatch_only_p99"], 1.2),
    ]
    figures.overlay(ax, numbers, unit="us", names=NAMES)
    ax.set_ylabel("Latency of a get (µs)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec7_2_dispatch_only",
    title="Gets of an ordered store with scans in worker threads, and in dispatch threads",
    profile="cx3",
    axes={"series": Axis(list(NAMES))},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "two cores hold no 16 threads of a server beside 64 of the clients"},
    decides={
        "erpc/masstree_dispatch_only_p99": decide.value("get_latency_p99", **DISPATCH),
        "erpc/masstree_worker_rank": decide.rank("get_latency_p99", [DISPATCH, WORKERS]),
    },
    misses={
        "erpc/masstree_dispatch_only_p99": "a scan has a core to itself here; two hyper-threads "
        "shared one in the paper's server",
    },
)
