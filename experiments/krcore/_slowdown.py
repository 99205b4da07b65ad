"""Slowdown of one client's requests against verbs, over their payload (figure 13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _one_sided
from pyrdma import Axis, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

KRCORE = ("KRCore(RC)", "KRCore(DC)")
SIZES = Axis(
    [8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20],
    full=[8, *(1 << n for n in range(6, 21))],
    unit="B",
)
NEGLIGIBLE = 7.0
"""Percent; the paper calls READs with less negligible."""
WHY_NOT = {"shm": "a process enters no kernel to call the service"}


def measure(point: Point) -> Any:
    """Measure one size."""
    op: Any = point["op"]
    size = int(point["size"])
    seconds = 100e-6 + size * 2e-9
    result = _one_sided.one_sided(
        point, str(point["series"]), op, 1, size=size, duration=(seconds, 5 * seconds)
    )
    return {"latency": (result.latency(op).mean, "ns")}


def slowdown(data: Data, op: str, series: str) -> pd.Series:
    """Return how much longer requests take than those of verbs, in percent, over the payload."""
    own, verbs = (data.series("latency", "size", series=s, op=op) for s in (series, "verbs"))
    return 100 * (own / verbs - 1)


def figure(op: str, paper: str) -> Callable[[Data, Mapping[str, Claim]], Figure]:
    """Return a function that draws the slowdown of both transports."""

    def draw(data: Data, claims: Mapping[str, Claim]) -> Figure:
        fig, ax = figures.new()
        for number, series in enumerate(KRCORE):
            found = slowdown(data, op, series)
            style = figures.style_of(number)
            ax.plot(list(found.index), list(found), label=series, **style)
        _axes.layer(ax)
        claim = claims[f"krcore/{paper}"]
        if op == "read":
            figures.overlay(ax, [(claim, float(claim.params["payload_min_exclusive"]))])
        else:
            text = "paper: negligible above 8 KiB"
            ax.axvline(claim.value, color="black", linewidth=1, linestyle="--", label=text)
        ax.axhline(NEGLIGIBLE, color="0.5", linewidth=1, linestyle=":", label="7 %")
        ax.set_xscale("log", base=2)
        ax.set(xlabel="Payload (B)", ylabel="Latency above that of verbs (%)", ylim=(0, None))
        ax.legend()
        return fig

    return draw
