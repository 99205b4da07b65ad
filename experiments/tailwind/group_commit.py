"""One write to the backups for all requests that a server has, beside one for each update.

Not in the paper, whose workers write for one request at a time. A server without workers runs the
requests on its dispatch thread. With ``group_commit`` it appends what all of them change, and then
posts once. With RPCs that is the strongest baseline that we have: few, large requests, which the
backups serve without a worker. Clients have eight requests under way each, and the costs are those
of our own code.
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

SERIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "workers": ("7 workers (the paper's)", "tailwind", {"workers": 7}),
    "alone": ("no workers", "tailwind", {"workers": 0}),
    "grouped": ("group commit (ours)", "tailwind", {"workers": 0, "group_commit": True}),
    "rpcs": ("group commit, by RPCs", "ramcloud", {"workers": 0, "group_commit": True}),
}
"""The name in the legend, the replication, and options."""


def measure(point: Point) -> Any:
    """Measure updates alone."""
    _, replication, options = SERIES[point["series"]]
    result = _store.run(
        point, point["clients"], 1.0, replication, costs="measured", in_flight=8, **options
    )
    return _store.measured(result, 1.0)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - not in the paper
    """Draw throughput and the median over the clients."""
    fig, (left, right) = figures.new(1, 2)
    for number, (series, (name, *_)) in enumerate(SERIES.items()):
        style = figures.style_of(number)
        rates = data.series("throughput", "clients", "op/s", series=series) / 1e3
        left.plot(rates.index, list(rates), label=name, **style)
        medians = data.series("put_p50", "clients", "us", series=series)
        right.plot(medians.index, list(medians), label=name, **style)
    left.set(xlabel="Clients, 8 requests each", ylabel="PUTs of four servers (KOp/s)")
    right.set(xlabel="Clients, 8 requests each", ylabel="Median of PUTs (µs)")
    _axes.from_zero(left, right)
    left.legend()
    return fig


experiment = Experiment(
    id="tailwind/group_commit",
    title="One write to the backups for all requests that a server has",
    profile="r320",
    axes={
        "series": Axis(list(SERIES)),
        "clients": Axis([1, 8, 16, 30], full=[1, 2, 4, 8, 12, 16, 20, 25, 30]),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
)
