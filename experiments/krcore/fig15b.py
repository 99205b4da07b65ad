"""READs of 64 B from one node to random others, against LITE (section 5.2, figure 15b).

Both have a pool of 32 connections. KRCore's are the dynamic queue pairs of 16 cores, two for each,
as everywhere; LITE has four to each of eight nodes. A thread of KRCore posts a list of requests to
one of the nodes, chosen at random, and LITE a request in each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _misses, _one_sided
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LITE, DC = "LITE", "KRCore(DC)"
SERVERS = 8
CONNECTIONS = 32
CORES = 16  # with two dynamic queue pairs each
SIZE = 64
WINDOW = "the window of 1200 requests is chosen so that the seventh thread overruns a queue"
# A thread of LITE waits for all 1200 requests of its window, a millisecond, at a time.
LITE_DURATION = (20e-3, 50e-3)


def measure(point: Point) -> Any:
    """Measure so many threads of one node."""
    threads, is_async = int(point["threads"]), point["mode"] == "async"
    if point["series"] == DC:
        result = _one_sided.one_sided(
            point,
            DC,
            "read",
            threads,
            batch=_one_sided.BATCH if is_async else 1,
            size=SIZE,
            servers=SERVERS,
            nodes=1 + SERVERS,
            cores=CORES,
            dc_queue_pairs=CONNECTIONS // CORES,
        )
        return {"rate": (result.value("rate"), "op/s"), "failed_threads": (0.0, "count")}
    load = workload.KrcoreLite(
        threads=threads,
        mode="async" if is_async else "sync",
        connections=CONNECTIONS,
        size=SIZE,
        region_bytes=_one_sided.REGION,
        warmup_ns=_one_sided.WARMUP_NS,
    )
    duration = LITE_DURATION if is_async else _one_sided.DURATION
    with point.cluster(nodes=1 + SERVERS) as cluster:
        result = cluster.run(load, duration_s=point.duration(*duration))
    failed = sum(s.value for s in result.samples if s.metric == "failed_threads")
    return {"rate": (result.value("rate"), "op/s"), "failed_threads": (failed, "count")}


def rates(data: Data, mode: str, series: str) -> pd.Series:
    """Return the rate over the threads, in millions per second."""
    return data.series("rate", "threads", "M req/s", mode=mode, series=series)


def loss(data: Data, claim: Claim) -> Decision:
    """Compare the largest loss of synchronous requests over the threads with the bound."""
    found = 100 * (1 - rates(data, "sync", DC) / rates(data, "sync", LITE))
    text = f"{found.min():.0f} to {found.max():.0f} {claim.unit}"
    return Decision(None, float(found.max()), text)


def ratio(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the peaks of asynchronous requests."""
    own, lite = (float(rates(data, "async", s).max()) for s in (DC, LITE))
    return Decision(None, own / lite, f"{own:.1f} to {lite:.2f} M/s")


def limit(data: Data, claim: Claim) -> Decision:
    """Return the most threads of LITE that no queue pair fails."""
    failed = data.series("failed_threads", "threads", claim.unit, mode="async", series=LITE)
    works = [int(threads) for threads in failed.index if failed.loc[:threads].max() == 0]
    if not works or works[-1] == failed.index[-1]:
        return Decision(False, f"{len(works)} of {len(failed)} numbers of threads work")
    return Decision(None, float(works[-1]))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the rates over the threads, of both modes."""
    fig, (left, right) = figures.new(1, 2)
    for ax, mode in ((left, "sync"), (right, "async")):
        for number, series in enumerate((LITE, DC)):
            found = rates(data, mode, series)
            name = f"{LITE}, 0 where it fails" if (series, mode) == (LITE, "async") else series
            ax.plot(list(found.index), list(found), label=name, **figures.style_of(number))
        ax.set(xlabel=f"Threads of the node, {mode}", ylabel="Throughput (M requests/s)")
    loss_of = claims["krcore/f15b_sync"].number
    if loss_of is not None:
        lite = rates(data, "sync", LITE)
        least = lite * (1 - loss_of / 100)
        left.plot(
            list(least.index),
            list(least),
            color="black",
            linewidth=1,
            linestyle=":",
            label=f"paper: at most {loss_of:g} % below LITE",
        )
    last = rates(data, "async", DC).index[-1]
    papers = [(claims["krcore/f15b_async_krcore"], last), (claims["krcore/f15b_async_lite"], 6)]
    figures.overlay(right, papers, unit="M req/s")
    _axes.from_zero(left, right)
    for ax in (left, right):
        ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/f15b_sync": loss,
    "krcore/f15b_async_krcore": decide.extreme("rate", "threads", mode="async", series=DC),
    "krcore/f15b_async_lite": decide.by_construction(
        decide.extreme("rate", "threads", mode="async", series=LITE),
        f"six threads reach it, and {WINDOW}",
    ),
    "krcore/f15b_async_ratio": ratio,
    "krcore/f15b_lite_thread_limit": decide.by_construction(limit, WINDOW),
}

experiment = Experiment(
    id="krcore/fig15b",
    title="READs of one node against LITE",
    profile="krcore",
    axes={
        "mode": Axis(["sync", "async"]),
        "series": Axis([LITE, DC]),
        "threads": Axis(
            [1, 4, 6, 7, 12, 24], full=[1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24], unit="threads"
        ),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_one_sided.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
