"""Latency of READs of 50 clients to five servers, each to a random one (figure 14b)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _misses, _one_sided
from pyrdma import Axis, Experiment, Point, Row, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLIENTS, SERVERS, NODES = 50, 5, 10
SERIES = ("verbs", "KRCore(RC)", "KRCore(DC)")
PERCENTILES = (1.0, 5.0, *(float(p) for p in range(10, 91, 10)), 95.0, 99.0, 99.5, 99.9)
TAIL = PERCENTILES[-1]


def measure(point: Point) -> list[Row]:
    """Measure the percentiles of one system."""
    result = _one_sided.one_sided(
        point,
        str(point["series"]),
        "read",
        CLIENTS,
        servers=SERVERS,
        nodes=NODES,
        duration=(2e-3, 20e-3),
    )
    latency = result.latency("read")
    return [Row("latency", latency.percentile(p), "ns", {"percentile": p}) for p in PERCENTILES]


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the share of READs that take longer than a time."""
    fig, ax = figures.new()
    for number, series in enumerate(SERIES):
        found = data.series("latency", "percentile", "us", series=series)
        above = [100 - float(p) for p in found.index]
        ax.plot(list(found), above, label=series, **figures.style_of(number))
    _axes.logarithmic(ax)
    keys = {"verbs": "verbs", "KRCore(RC)": "rc", "KRCore(DC)": "dc"}
    for (series, key), marker in zip(keys.items(), "osD", strict=True):
        paper = claims[f"krcore/f14b_{key}"].number
        if paper is not None:
            _axes.hollow(ax, paper, 100 - TAIL, f"paper: {series}", marker)
    ax.set(xlabel="Latency (µs)", ylabel="READs that take longer (%)", ylim=(0.06, 120))
    ax.legend()
    return fig


def tail(series: str) -> decide.Decider:
    """Return the decider of one system's percentile 99.9."""
    return decide.value("latency", series=series, percentile=TAIL)


DECIDES: dict[str, Any] = {
    "krcore/f14b_verbs": tail("verbs"),
    "krcore/f14b_rc": tail("KRCore(RC)"),
    "krcore/f14b_dc": tail("KRCore(DC)"),
    "krcore/f14b_rank": decide.rank(
        "latency", [{"series": s} for s in reversed(SERIES)], percentile=TAIL
    ),
}

experiment = Experiment(
    id="krcore/fig14b",
    title="Tail latency with five servers",
    profile="krcore",
    axes={"series": Axis(SERIES)},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "50 clients need 50 cores; fabric/latency measures this machine's own"},
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
