"""RPCs of 64 B per second of one core (section 2.2).

The paper's 10 million RPCs of one core are 5 million that it sends and 5 million that it serves
(section 6.2). IX's number is that of a server alone, so a second series has ten clients and one
serving core. IX itself is not measured here.
"""

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

BYTES = 64
BOTH, SERVER = "client and server", "server alone"
NODES = 11


def measure(point: Point) -> Any:
    """Measure the RPCs that one core handles, in both roles or as a server."""
    shape = {"request": BYTES, "response": BYTES}
    if point["series"] == BOTH:
        sent, unit = _load.rate(point, **shape)
        return {"rate_per_core": (2 * sent, unit)}
    # All clients' requests end at the one server.
    rate, unit = _load.rate(point, pattern="incast", **shape)
    return {"rate_per_core": (NODES * rate, unit)}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both rates, with the paper's of eRPC and of IX."""
    fig, ax = figures.new()
    names = [BOTH, SERVER]
    rates = [data.value("rate_per_core", "Mop/s", series=name) for name in names]
    figures.bars(ax, names, {"eRPC, CX4": rates})
    _axes.write_values(ax)
    numbers = [(claims["erpc/erpc_rate_per_core_64b"], 0), (claims["erpc/ix_rate_per_core"], 1)]
    figures.overlay(ax, numbers, unit="Mop/s", names={"eRPC": "eRPC", "IX": "IX"})
    ax.set(ylabel="RPCs of 64 B per core (M/s)", ylim=(0, 1.4 * max(*rates, 10)))
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec2_2_ix_rate",
    title="RPCs of 64 B that one core handles",
    profile="cx4",
    axes={"series": Axis([BOTH, SERVER])},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "eleven nodes that poll need a core each; see pyrdma bench erpc/"},
    decides={
        "erpc/erpc_rate_per_core_64b": decide.value("rate_per_core", series=BOTH),
        "erpc/ix_rate_per_core": Undecidable("a number of IX's paper; IX is not measured here"),
        "erpc/rpc_vs_onesided": Undecidable(
            "a result of the authors' earlier work, which it cites"
        ),
    },
    misses={
        "erpc/erpc_rate_per_core_64b": _misses.RATE,
    },
)
