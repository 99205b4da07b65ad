"""Echoes of 1 to 240 clients by one server of 24 threads, as in figure 11 (section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _misses, _one_sided
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLIENTS = Axis([1, 40, 120, 240], full=_one_sided.CLIENTS.full, unit="clients")
SERIES = ("verbs", "KRCore(RC)", "KRCore(DC)")
BATCH = 2
"""Messages of a client's batch in asynchronous mode, as in the public code."""


def echo(point: Point, series: str, clients: int, batch: int) -> Any:
    """Run one load of 8 B messages, and return its result."""
    load = workload.KrcoreEcho(
        system="verbs" if series == "verbs" else "krcore",
        transport="rc" if series == "KRCore(RC)" else "dc",
        size=8,
        batch=batch,
        clients=clients,
        server_threads=24,
        warmup_ns=_one_sided.WARMUP_NS,
    )
    with point.cluster(nodes=1 + min(_one_sided.CLIENT_NODES, clients)) as cluster:
        return cluster.run(load, duration_s=point.duration(*_one_sided.DURATION))


def measure(batch: int, also_reads: bool) -> Callable[[Point], Any]:
    """Return a function that measures echoes; `also_reads` adds READs at one client."""

    def run(point: Point) -> Any:
        series, clients = str(point["series"]), int(point["clients"])
        result = echo(point, series, clients, batch)
        found = {
            "rate": (result.value("rate"), "op/s"),
            "latency": (result.latency("echo").mean, "ns"),
        }
        if also_reads and clients == 1:
            read = _one_sided.one_sided(point, series, "read", 1)
            found["read_latency"] = (read.latency("read").mean, "ns")
        return found

    return run


def figure(name: str) -> Callable[[Data, Mapping[str, Claim]], Figure]:
    """Return a function that draws latency against throughput, and throughput against clients."""

    def draw(data: Data, claims: Mapping[str, Claim]) -> Figure:
        fig, (left, right) = figures.new(1, 2)
        for number, series in enumerate(SERIES):
            rate = data.series("rate", "clients", "M req/s", series=series)
            latency = data.series("latency", "clients", "us", series=series)
            style = figures.style_of(number)
            left.plot(rate.to_list(), latency.to_list(), label=series, **style)
            right.plot(rate.index.to_list(), rate.to_list(), label=series, **style)
        left.set(xlabel="Throughput (M messages/s)", ylabel="Mean latency (µs)")
        right.set(xlabel="Clients", ylabel="Throughput (M messages/s)")
        for ax in (left, right):
            _axes.layer(ax)
        _one_sided.overlay(left, right, [c for c in claims.values() if c.experiment == name])
        _axes.from_zero(right)
        _axes.logarithmic(left)
        figures.legend_below((left, right))
        return fig

    return draw


def experiment(
    name: str,
    title: str,
    batch: int,
    decides: Mapping[str, Any],
    also_reads: bool = False,
) -> Experiment:
    """Return one of the two experiments of figure 11."""
    return Experiment(
        id=f"krcore/{name}",
        title=title,
        profile="krcore",
        axes={"series": Axis(SERIES), "clients": CLIENTS},
        measure=measure(batch, also_reads),
        figure=figure(f"krcore/{name}"),
        fabrics=("sim", "verbs"),
        why_not=_one_sided.WHY_NOT,
        decides=dict(decides),
        misses=_misses.of(decides),
    )
