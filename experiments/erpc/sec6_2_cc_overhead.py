"""The cost of congestion control for small requests (sections 5.2.2 and 6.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.erpc import _load, _misses
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "request_rate_per_thread"
CONTROL = {"eRPC": "timely", "eRPC_no_cc": "none"}
NAMES = {"eRPC": "with (Timely)", "eRPC_no_cc": "without"}


def measure(point: Point) -> Any:
    """Measure figure 4's load in batches of 3 with or without congestion control."""
    return {METRIC: _load.rate(point, congestion_control=CONTROL[point["series"]])}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the two rates beside the paper's."""
    fig, ax = figures.new()
    rates = [data.value(METRIC, "Mop/s", series=series) for series in NAMES]
    figures.bars(ax, list(NAMES.values()), {"eRPC, CX4": rates})
    _axes.write_inside(ax)
    numbers = [(claims["erpc/rate_cc_on"], 0), (claims["erpc/rate_cc_off"], 1)]
    figures.overlay(ax, numbers, unit="Mop/s", names=NAMES)
    ax.set(
        xlabel="Congestion control",
        ylabel="Requests per thread (M/s)",
        ylim=(0, 1.5 * max(*rates, 5.44)),
    )
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec6_2_cc_overhead",
    title="Cost of congestion control for small requests",
    profile="cx4",
    axes={"series": Axis(list(CONTROL))},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "eleven nodes that poll need a core each; see pyrdma bench erpc/"},
    decides={
        "erpc/rate_cc_on": decide.value(METRIC, series="eRPC"),
        "erpc/rate_cc_off": decide.value(METRIC, series="eRPC_no_cc"),
        "erpc/cc_overhead_with_shortcuts": decide.ratio(
            METRIC, {"series": "eRPC"}, {"series": "eRPC_no_cc"}, "loss"
        ),
        "erpc/timely_low_threshold": Undecidable(
            "a constant of the code: TimelyOptions::t_low in native/systems/erpc/timely.h"
        ),
    },
    misses={
        "erpc/rate_cc_on": _misses.RATE,
        "erpc/rate_cc_off": _misses.RATE,
        "erpc/cc_overhead_with_shortcuts": "with the three shortcuts congestion control is some "
        "comparisons within counted steps, whose mean is charged with it on and off",
    },
)
