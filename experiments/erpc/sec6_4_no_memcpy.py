"""Goodput of 8 MiB requests with and without the server's copies (section 6.4).

A server copies the packets of a request into one buffer. Without the copies a handler sees memory
of undefined content, so that the load compares no responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COPIES = {"eRPC": "on", "eRPC_no_rx_copy": "off"}
NAMES = {"eRPC": "with copies", "eRPC_no_rx_copy": "without copies"}


def measure(point: Point) -> Any:
    """Measure the longest request, with the copies on or off."""
    return {"bandwidth": _load.large(point, _load.LARGE, request_copies=COPIES[point["series"]])}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both goodputs beside the paper's peaks."""
    fig, ax = figures.new()
    found = [data.value("bandwidth", "Gbps", series=series) for series in NAMES]
    figures.bars(ax, list(NAMES.values()), {"eRPC, 8 MiB": found})
    _axes.write_inside(ax, "{:.1f}")
    numbers = [(claims["erpc/f6_erpc_peak"], 0), (claims["erpc/s64_no_copy_bw"], 1)]
    figures.overlay(ax, numbers, unit="Gbps", names=NAMES)
    ax.set(ylabel="Goodput (Gbps)", ylim=(0, 140))
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec6_4_no_memcpy",
    title="Large-transfer throughput without the server's copies",
    profile="cx5_ib100",
    axes={"series": Axis(list(COPIES))},
    measure=measure,
    figure=figure,
    decides={"erpc/s64_no_copy_bw": decide.value("bandwidth", series="eRPC_no_rx_copy")},
)
