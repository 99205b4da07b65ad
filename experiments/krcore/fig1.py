"""Time of a short-lived process that connects and then sends requests (figure 1, section 1).

The paper's bars are applications and their starts. Here a process connects once and reads 8 B so
many times. Connection and READ are measured; the time of several READs is their product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import needs
from experiments.krcore import _control, _misses, _one_sided
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("verbs", "LITE", "KRCore")
REQUESTS = (1, 10, 100, 1000, 10_000, 100_000)
READS = {"verbs": "verbs", "KRCore": "KRCore(DC)"}


def measure(point: Point) -> Any:
    """Measure one connection, and one READ where the system has a data path here."""
    series = str(point["series"])
    found = {"connect": (_control.one(point, series), "ns")}
    if series in READS:
        result = _one_sided.one_sided(point, READS[series], "read", 1)
        found["read"] = (result.latency("read").mean, "ns")
    return found


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the time of a process over its requests."""
    fig, ax = figures.new()
    for number, series in enumerate(READS):
        connect = data.value("connect", "ms", series=series)
        read = data.value("read", "ms", series=series)
        total = [connect + n * read for n in REQUESTS]
        ax.plot(REQUESTS, total, label=f"{series}, connection included", **figures.style_of(number))
    read = data.value("read", "ms", series="verbs")
    style = {**figures.style_of(2), "color": "0.4"}
    ax.plot(REQUESTS, [n * read for n in REQUESTS], label="verbs, READs alone", **style)
    figures.overlay(
        ax,
        [(claims["krcore/verbs_connect_latency"], 0.6), (claims["krcore/f8a_krcore_1"], 0.6)],
        unit="ms",
        names={"verbs": "verbs, connection", "KRCore": "KRCore, connection"},
    )
    ax.set_xscale("log")
    _axes.logarithmic(ax)
    ax.set(xlabel="READs of 8 B in the life of a process", ylabel="Time of the process (ms)")
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/fig1_control_vs_data": decide.ratio(
        "connect", {"series": "verbs"}, {"series": "verbs"}, to_metric="read"
    ),
    "krcore/fig1_control_dominates": needs(
        "the execution times of RACE, FaRM-v2 and functions, of which no experiment has any"
    ),
}

experiment = Experiment(
    id="krcore/fig1",
    title="Control path in the life of a short process",
    profile="krcore",
    axes={"series": Axis(SERIES)},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_control.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
