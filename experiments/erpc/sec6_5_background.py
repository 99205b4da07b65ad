"""Latency of 64 KiB RPCs between the clients of an incast (section 6.5).

Each node but the victim has one more thread, which sends one RPC at a time, with 64 KiB each way,
to the like thread of a random other node. The paper does not say to which. A series without the
incast shows what the RPCs take alone; it decides no claim. A quick run is too short for Timely's
rates to settle (``_incast.WARMUP``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments._needs import Undecidable
from experiments.erpc import _incast, _load
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BYTES = 64 << 10
DEGREE = 100
INCAST, ALONE = "during the incast", "without an incast"
NAMES = {ALONE: {"request": 32}, INCAST: {}}
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}


def measure(point: Point) -> Any:
    """Measure the background RPCs; without an incast the clients send 32 B."""
    span = point.duration(3e-3, 20e-3)
    settings: dict[str, Any] = {
        "pattern": "incast",
        "background": BYTES,
        "request": _load.LARGE,
        "warmup_ns": round(point.duration(5e-3, _incast.WARMUP[1]) * 1e9),
        **NAMES[point["series"]],
    }
    options = {"overrides": _load.five_racks(DEGREE + 1)}
    result = _load.run(point, DEGREE + 1, span, options, **settings)
    latency = result.latency("background")
    return {f"latency_{key}": (latency.percentile(p), "ns") for key, p in PERCENTILES.items()}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw three percentiles with and without the incast, beside the paper's numbers."""
    fig, ax = figures.new()
    names = {"p50": "median", "p90": "90th", "p99": "99th percentile"}
    found = {
        series: [data.value(f"latency_{key}", "us", series=series) for key in names]
        for series in NAMES
    }
    figures.bars(ax, list(names.values()), found)
    numbers = [(claims["erpc/s65_background_p99"], 2.2), (claims["erpc/s65_timely_published"], 2.4)]
    figures.overlay(
        ax,
        numbers,
        unit="us",
        names={"eRPC": "eRPC", "Timely_published": "Timely, 40 flows, lossless"},
    )
    ax.set(ylabel="Latency of a 64 KiB RPC (µs)", ylim=(0, 1.5 * max(300, *found[INCAST])))
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec6_5_background",
    title="Latency of 64 KiB RPCs during an incast of 100 flows",
    profile="cx4",
    axes={"series": Axis(list(NAMES))},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no switch to congest",
        "verbs": "needs 101 nodes below five switches",
    },
    decides={
        "erpc/s65_background_p99": decide.value("latency_p99", series=INCAST),
        "erpc/s65_timely_published": Undecidable("a number of another paper, from its testbed"),
    },
    misses={
        "erpc/s65_background_p99": "without the incast the 99th percentile is as long, 331 us: "
        "the RPCs of 100 nodes wait for each other. Each goes to a random node, since the paper "
        "does not say to which; two ways of 64 KiB take 42 us of a link",
    },
)
