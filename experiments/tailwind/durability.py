"""What each durability level costs: a completion, or a read of no bytes behind each write.

Not in the paper, which takes a completion for the proof that data are in the backup's memory. The
verbs interface promises that only of what a later read on the same connection has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _store
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = {"completion": "completion (the paper's)", "flush": "flush (ours)"}


def measure(point: Point) -> Any:
    """Measure updates alone."""
    result = _store.run(point, point["clients"], 1.0, "tailwind", durability=point["series"])
    return _store.measured(result, 1.0)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - not in the paper
    """Draw the median over the throughput."""
    fig, (left, right) = figures.new(1, 2)
    for number, (level, name) in enumerate(LEVELS.items()):
        rates = data.series("throughput", "clients", "op/s", series=level) / 1e3
        for ax, p in ((left, 50), (right, 99)):
            values = data.series(f"put_p{p}", "clients", "us", series=level)
            ax.plot(list(rates), list(values), label=name, **figures.style_of(number))
    for ax, name in ((left, "Median"), (right, "99th percentile")):
        ax.set(xlabel="Throughput of four servers (KOp/s)", ylabel=f"{name} of PUTs (µs)")
    _axes.from_zero(left, right)
    left.legend()
    return fig


experiment = Experiment(
    id="tailwind/durability",
    title="Cost of each durability level",
    profile="r320",
    axes={
        "series": Axis(list(LEVELS)),
        "clients": Axis([1, 8, 16, 30], full=[1, 2, 4, 8, 12, 16, 20, 25, 30]),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
)
