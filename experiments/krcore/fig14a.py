"""Time of 64 READs to random nodes, against the dynamic queue pairs of the pool (figure 14a).

A client posts one READ on each of 64 virtual queue pairs in one system call, and waits for all.
On reliable connections each virtual queue pair has one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _misses
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 10
RC, DC = "KRCore(RC)", "KRCore(DC)"
GAIN = 0.1
"""A larger pool that is not faster by this fraction is not worth its memory."""


def is_run(params: Mapping[str, Any]) -> bool:
    """Reliable connections do not depend on the pool: run them once."""
    return bool(params["series"] == DC or params["pool"] == 1)


def measure(point: Point) -> Any:
    """Measure batches with one pool."""
    load = workload.KrcoreBatch(
        transport="dc" if point["series"] == DC else "rc", dc_queue_pairs=int(point["pool"])
    )
    with point.cluster(nodes=NODES) as cluster:
        result = cluster.run(load, duration_s=point.duration(500e-6, 5e-3))
    return {
        "batch_latency": (result.latency("batch").mean, "ns"),
        "polled_queues": (result.value("polled_queues"), "count"),
    }


def both(data: Data) -> tuple[Any, float]:
    """Return the latency on dynamic connections over the pool, and that on reliable ones."""
    dynamic = data.series("batch_latency", "pool", "us", series=DC)
    return dynamic, data.value("batch_latency", "us", series=RC, pool=1)


def crossover(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Return the largest pool that is not faster than reliable connections."""
    dynamic, reliable = both(data)
    slower = [int(pool) for pool in dynamic.index if dynamic[pool] >= reliable]
    text = f"RC {reliable:.1f} us; DC " + ", ".join(f"{n}: {v:.1f}" for n, v in dynamic.items())
    if not slower:
        return Decision(False, "DC is faster with any pool", text)
    if slower[-1] == dynamic.index[-1]:
        return Decision(False, f"not up to {slower[-1]}", text)
    return Decision(None, float(slower[-1]), text)


def gain(data: Data, claim: Claim) -> Decision:
    """Compare the mean reduction of the latency by pools of more than two queue pairs."""
    dynamic, reliable = both(data)
    found = 100 * (1 - dynamic.loc[3:] / reliable)
    text = f"{found.min():.0f} to {found.max():.0f} {claim.unit}"
    return Decision(None, float(found.mean()), text)


def enough(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Return the smallest pool than which no larger one is much faster."""
    dynamic, _ = both(data)
    best = float(dynamic.min())
    small = [int(pool) for pool in dynamic.index if dynamic[pool] * (1 - GAIN) <= best]
    return Decision(None, float(small[0]), f"{dynamic[small[0]]:.1f} us; best {best:.1f} us")


def polls(data: Data, claim: Claim) -> Decision:
    """Compare the completion queues that a round of polls visits."""
    reliable = data.value("polled_queues", claim.unit, series=RC, pool=1)
    dynamic = data.value("polled_queues", claim.unit, series=DC, pool=1)
    return Decision(None, reliable - dynamic, f"{reliable:.0f} queues, on DC {dynamic:.0f}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the latency over the pool."""
    fig, ax = figures.new()
    dynamic, reliable = both(data)
    ax.plot(list(dynamic.index), list(dynamic), label=DC, **figures.style_of(0))
    line = figures.style_of(1)
    ax.axhline(
        reliable,
        color=line["color"],
        linestyle=line["linestyle"],
        label=f"{RC}, 64 connections",
    )
    figures.overlay(ax, [(claims["krcore/f14a_dc_pool1"], 1)], unit="us")
    paper = claims["krcore/f14a_rc"].number
    if paper is not None:
        ax.axhline(paper, color="black", linewidth=1, linestyle=":", label=f"paper: {RC}")
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(dynamic.index), [str(int(pool)) for pool in dynamic.index])
    ax.set(xlabel="Dynamic queue pairs of the pool", ylabel="Mean time of 64 READs (µs)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/f14a_dc_pool1": decide.value("batch_latency", series=DC, pool=1),
    "krcore/f14a_rc": decide.value("batch_latency", series=RC, pool=1),
    "krcore/f14a_ratio": decide.ratio("batch_latency", {"series": DC}, {"series": RC}, pool=1),
    "krcore/f14a_crossover": crossover,
    "krcore/f14a_dc_gain": gain,
    "krcore/f14a_rc_extra_polls": decide.by_construction(
        polls, "a connection for each of 64 requests has a completion queue of its own"
    ),
    "krcore/f14a_trend": decide.trend("batch_latency", "pool", "falls", by=0.2, series=DC),
    "krcore/dcqp_pool_default": enough,
}

experiment = Experiment(
    id="krcore/fig14a",
    title="Batches to random nodes against the pool's size",
    profile="krcore",
    axes={
        "series": Axis([RC, DC]),
        "pool": Axis([1, 2, 4, 8, 16], full=[1, 2, 3, 4, 6, 8, 12, 16], unit="queue pairs"),
    },
    where=is_run,
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "over shared memory a change of targets reconnects nothing"},
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
