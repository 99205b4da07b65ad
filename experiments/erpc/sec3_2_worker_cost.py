"""Handlers in the dispatch thread or in a worker thread (section 3.2).

The paper quotes RAMCloud, which hands every request to a worker. Here eRPC does: the latency of one
RPC at a time shows what the hand-over adds, and ten clients of one server what it costs in rate.
The handlers compute for a given time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS = {"dispatch thread": 0, "worker thread": 1}
DISPATCH, WORKER = WORKERS
NODES = 11


def measure(point: Point) -> Any:
    """Measure latency and rate with the handlers in one kind of thread."""
    settings = {"workers": WORKERS[point["series"]], "service_ns": point["service_ns"]}
    latency = _load.one(point, **settings).latency("rpc")
    rate, unit = _load.rate(point, pattern="incast", **settings)
    return {
        "latency_p50": (latency.percentile(50), "ns"),
        "served_rate": (NODES * rate, unit),
    }


def lower_rate(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a hand-over of every request lowers the rate of empty handlers."""
    both = [data.value("served_rate", "Mop/s", series=s, service_ns=0) for s in WORKERS]
    return Decision(both[1] < both[0], f"{both[0]:.2f} to {both[1]:.2f} M/s")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw latency and rate against the time of the handler."""
    fig, (left, right) = figures.new(1, 2)
    for ax, metric, unit in ((left, "latency_p50", "us"), (right, "served_rate", "Mop/s")):
        for number, series in enumerate(WORKERS):
            figures.line(
                ax,
                data,
                metric,
                "service_ns",
                unit=unit,
                label=series,
                first=number,
                series=series,
            )
        ax.set_xlabel("Time of the handler (ns)")
    added = (claims["erpc/interthread_latency"].number or 0.0) / 1e3
    alone = data.value("latency_p50", "us", series=DISPATCH, service_ns=0)
    _axes.hollow(left, 0, alone + added, "paper: at most, RAMCloud")
    left.set_ylabel("Median latency of one RPC (µs)")
    right.set_ylabel("Requests that one node serves (M/s)")
    for ax in (left, right):
        _axes.from_zero(ax)
    left.legend()
    right.legend()
    return fig


experiment = Experiment(
    id="erpc/sec3_2_worker_cost",
    title="Handlers in the dispatch thread or in a worker thread",
    profile="cx4",
    axes={
        "series": Axis(list(WORKERS)),
        "service_ns": Axis([0, 500, 2000], full=[0, 100, 200, 500, 1000, 2000, 5000], unit="ns"),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "two cores hold no client, server and worker at once"},
    decides={
        "erpc/interthread_latency": Undecidable(
            "a number of RAMCloud, which is not measured here; the figure has eRPC's own"
        ),
        "erpc/interthread_lowers_throughput": lower_rate,
        "erpc/dispatch_handler_limit": Undecidable(
            "a rule of thumb; the numbers are a reading of 'a few hundred ns'"
        ),
    },
    misses={
        "erpc/interthread_lowers_throughput": "the worker has a core of its own, which takes the "
        "handler and the answer from the dispatch thread: 6.0 instead of 5.6 M/s, but 3.0 per "
        "core. The claim holds for each core, not for a node",
    },
)
