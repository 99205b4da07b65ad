"""What the control path gains and the data path loses (section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments._needs import Undecidable, needs
from experiments.krcore import _control, _misses, _one_sided
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("verbs", "KRCore")
DATA = {"verbs": "verbs", "KRCore": "KRCore(DC)"}
PATHS = {"connect": "connection", "read": "READ of 8 B", "write": "WRITE of 8 B"}


def measure(point: Point) -> Any:
    """Measure a connection, and both requests at one client."""
    series = str(point["series"])
    found = {"connect": (_control.one(point, series), "ns")}
    for op in ("read", "write"):
        result = _one_sided.one_sided(point, DATA[series], op, 1)
        found[op] = (result.latency(op).mean, "ns")
    return found


def slowdown(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the largest slowdown of a synchronous request of one client."""
    found = {
        op: 100 * (data.value(op, series="KRCore") / data.value(op, series="verbs") - 1)
        for op in ("read", "write")
    }
    text = ", ".join(f"{op} {value:.0f} %" for op, value in found.items())
    return Decision(None, max(found.values()), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw connection and requests of both systems."""
    fig, ax = figures.new()
    groups = {s: [data.value(m, "us", series=s) for m in PATHS] for s in SERIES}
    figures.bars(ax, list(PATHS.values()), groups, values="{:,.1f}", log=True)
    figures.overlay(
        ax,
        [(claims["krcore/verbs_connect_latency"], -0.2), (claims["krcore/f8a_krcore_1"], 0.2)],
        unit="us",
    )
    ax.set(ylabel="Time (µs)", ylim=(1, 1e5))
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/s6_speedup": decide.ratio("connect", {"series": "verbs"}, {"series": "KRCore"}),
    "krcore/s6_slowdown": slowdown,
    "krcore/s6_requests_per_function": Undecidable(
        "a number of other publications, which it cites"
    ),
    "krcore/s6_cx6_connect": needs("the control path of a ConnectX-6, which no profile has"),
}

experiment = Experiment(
    id="krcore/sec6_discussion",
    title="Gain of the control path, loss of the data path",
    profile="krcore",
    axes={"series": Axis(SERIES)},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_control.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
