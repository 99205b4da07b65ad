"""Lookups of RACE hashing over verbs on eight machines, as the paper checks its RACE (5.3.1).

One machine has the table, and the clients of the other seven look random keys up, as YCSB-C does.
The paper gives neither the storage nodes nor the sizes (ambiguity unreported_workload): the keys
have 16 B and the values 64 B.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.krcore import _misses, _one_sided
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MACHINES = 8
WINDOW = 12  # lookups under way of a client, as in the one-sided experiments


def measure(point: Point) -> Any:
    """Measure so many clients."""
    load = workload.KrcoreRace(
        system="verbs",
        clients=int(point["clients"]),
        window=WINDOW,
        value_bytes=64,
        warmup_ns=_one_sided.WARMUP_NS,
    )
    with point.cluster(nodes=MACHINES) as cluster:
        result = cluster.run(load, duration_s=point.duration(*_one_sided.DURATION))
    return {
        "rate": (result.value("rate"), "op/s"),
        "latency": (result.latency("get").mean, "ns"),
        "missing": (sum(s.value for s in result.samples if s.metric == "missing"), "count"),
    }


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the rate over the clients."""
    fig, ax = figures.new()
    rate = data.series("rate", "clients", "M req/s")
    clients = list(rate.index)
    ax.plot(clients, list(rate), label="RACE over verbs", **figures.style_of(0))
    names = {"verbs": "verbs, ConnectX-4", "RACE_published": "RACE's own paper, ConnectX-5"}
    papers = [claims["krcore/race_verbs_peak"], claims["krcore/race_published_peak"]]
    figures.overlay(ax, [(claim, clients[-1]) for claim in papers], unit="M req/s", names=names)
    ax.set(xlabel="Clients on seven machines", ylabel="Lookups (M/s)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/race_verbs_peak": decide.extreme("rate", "clients"),
    "krcore/race_published_peak": Undecidable("a number of RACE's paper, which it cites"),
}

experiment = Experiment(
    id="krcore/sec5_3_1_race_check",
    title="Lookups of RACE hashing over verbs",
    profile="krcore",
    axes={
        "clients": Axis([7, 28, 84, 168], full=[7, 14, 28, 56, 84, 112, 140, 168], unit="clients")
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "168 clients need 168 cores; fabric/rate measures this machine's own rates"},
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
