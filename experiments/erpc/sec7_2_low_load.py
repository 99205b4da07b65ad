"""Latency of a get of an ordered store at low load (section 7.2).

One client thread has one request under way. The paper does not say how light its load is. Cell's
latency is a published one of another testbed, and is not measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.erpc import _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = {"get_latency_p50": "median", "get_latency_p99": "99th percentile"}


def measure(point: Point) -> Any:
    """Measure one request at a time."""
    return _store.measure(point, _store.WORKERS, 1, clients=1, threads=1)


def transmission(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Divide the bytes that Cell's values are longer by the rate of the link."""
    size, rate = claim.params["bytes"], claim.params["link_gbps"]
    return Decision(None, 8 * size / rate, f"{size} B at {rate} Gbps")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the median and the tail, with the paper's median."""
    fig, ax = figures.new()
    found = {"eRPC": [data.value(metric, "us") for metric in METRICS]}
    figures.bars(ax, list(METRICS.values()), found)
    figures.overlay(
        ax, [(claims["erpc/masstree_low_load_p50"], 0.0)], unit="us", names={"eRPC": "eRPC"}
    )
    ax.set_ylabel("Latency of a get (µs)")
    ax.set_ylim(0, 1.4 * max(found["eRPC"]))
    _axes.write_inside(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec7_2_low_load",
    title="Latency of a get of an ordered store at low load",
    profile="cx3",
    axes={"series": Axis(["eRPC"])},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "one machine has too few cores for the server's 16 threads"},
    decides={
        "erpc/masstree_low_load_p50": decide.value("get_latency_p50"),
        "erpc/masstree_vs_cell": Undecidable("a published number of Cell, from its testbed"),
        "erpc/extra_bytes_time": decide.by_construction(transmission, "arithmetic of the paper"),
    },
    misses={
        "erpc/masstree_low_load_p50": "an RPC alone takes longer than the paper's (erpc/table2)",
    },
)
