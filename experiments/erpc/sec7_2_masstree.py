"""Gets of an ordered store with scans in worker threads (section 7.2).

One server has 14 dispatch threads and 2 worker threads. 64 client threads on 8 nodes send 99 % gets
and 1 % scans of 128 keys. The map is LMDB where the paper has Masstree. The two workers belong to
two of the endpoints, and the clients send all scans there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS = 2  # requests of a client thread under way
SATURATED = 0.95  # of the greatest rate


def measure(point: Point) -> Any:
    """Measure one window of the clients."""
    return _store.measure(point, _store.WORKERS, point["in_flight"])


def saturation(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Find the least window with about the greatest rate."""
    rates = data.series("get_rate", "in_flight", "Mop/s")
    least = min(int(n) for n in rates.index if rates[n] >= SATURATED * rates.max())
    text = ", ".join(f"{n}: {rates[n]:.1f}" for n in rates.index)
    return Decision(None, least, f"M gets/s by window: {text}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw rate and tail of the gets by window, beside the paper's numbers."""
    fig, (left, right) = figures.new(1, 2)
    names = {"eRPC_workers": "eRPC"}
    figures.line(left, data, "get_rate", "in_flight", unit="Mop/s", label="measured")
    figures.overlay(left, [(claims["erpc/masstree_get_rate"], PAPERS)], unit="Mop/s", names=names)
    left.set_ylabel("Gets (M/s)")
    figures.line(right, data, "get_latency_p99", "in_flight", unit="us", label="99th percentile")
    figures.line(right, data, "get_latency_p50", "in_flight", unit="us", label="median", first=1)
    figures.overlay(right, [(claims["erpc/masstree_get_p99"], PAPERS)], unit="us", names=names)
    right.set_ylabel("Latency of a get (µs)")
    for ax in (left, right):
        ax.set_xlabel("Requests of a client thread under way")
        ax.set_xticks(data.values_of("in_flight"))
        _axes.from_zero(ax)
        ax.legend()
    return fig


GETS = (
    "a get of LMDB takes 1,550 instructions of a dispatch thread "
    "(native/systems/erpc/ordered_store/README.md), more than the RPC"
)

experiment = Experiment(
    id="erpc/sec7_2_masstree",
    title="Gets of an ordered store with scans in worker threads",
    profile="cx3",
    axes={"in_flight": Axis([1, 2, 4], full=[1, 2, 3, 4, 6, 8])},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "two cores hold no 16 threads of a server beside 64 of the clients"},
    decides={
        "erpc/masstree_get_rate": decide.value("get_rate", in_flight=PAPERS),
        "erpc/masstree_get_p99": decide.value("get_latency_p99", in_flight=PAPERS),
        "erpc/masstree_saturation_window": saturation,
    },
    misses={
        "erpc/masstree_get_rate": GETS,
        "erpc/masstree_get_p99": GETS,
    },
)
