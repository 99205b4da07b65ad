"""Time scales that the paper sets its control path beside (section 2.1): most are quoted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments._needs import Undecidable, each
from experiments.krcore import _control, _misses
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("verbs", "LITE", "KRCore")
QUOTED = {
    "krcore/txn_latency": "RDMA transaction,\nquoted",
    "krcore/container_launch": "container (SOCK),\nquoted",
    "krcore/container_launch_fast": "container (Catalyzer),\nquoted",
}


def measure(point: Point) -> Any:
    """Measure one connection."""
    return {"connect": (_control.one(point, str(point["series"])), "ns")}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the measured times of a connection beside the quoted times of applications."""
    fig, ax = figures.new(wide=True)
    times = [data.value("connect", "us", series=s) for s in SERIES]
    figures.bars(ax, SERIES, {"measured": times}, values="{:,.1f}", log=True)
    figures.overlay(
        ax,
        [(claims["krcore/verbs_control_old"], 0)]
        + [(claims[c], len(SERIES) + n) for n, c in enumerate(QUOTED)],
        unit="us",
        names={
            "verbs": "connection by verbs",
            "RDMA_transactions": "transactions",
            "container_launch": "containers",
        },
    )
    places = range(len(SERIES) + len(QUOTED))
    labels = [f"connection,\n{s}" for s in SERIES] + list(QUOTED.values())
    ax.set_xticks(places, labels)
    ax.set(ylabel="Time (µs)", ylim=(1, 1e5), xlim=(-0.6, len(places) - 0.4))
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    **each(QUOTED, Undecidable("a number of other publications, which it cites")),
    "krcore/verbs_control_old": decide.value("connect", series="verbs"),
}

experiment = Experiment(
    id="krcore/sec2_1_context",
    title="Time scales of elastic workloads",
    profile="krcore",
    axes={"series": Axis(SERIES)},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_control.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
