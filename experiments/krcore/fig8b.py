"""Time until workers on all nodes have connected to each other (section 5.1, figure 8b).

A worker of KRCore connects its virtual queue pairs in one system call, and the workers of a node
share what they learn of other nodes (ambiguity full_mesh_arithmetic).

For verbs and LITE one node of the mesh is measured. The workers of all other nodes make a
connection to each worker of that node, whose NIC makes one end of each. The other nodes would do
the same at the same time. Connections within a node are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _control, _misses
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 10
MANY = 240
SERIES = (*_control.SERIES, "KRCore")
ORDERS = 100


def measure(point: Point) -> Any:
    """Measure until the last worker has its connections."""
    series, workers = str(point["series"]), int(point["workers"])
    own = workers // NODES
    if series == "KRCore":
        load: Any = workload.KrcoreMesh(workers=workers)
    else:
        load = workload.ControlPath(
            clients=workers - own, iterations=own, skip_open=series == "LITE", keep=True
        )
    with point.cluster(nodes=NODES) as cluster:
        result = cluster.run(load)
    metric = "finished" if series == "KRCore" else "elapsed"
    return {"total_time": (max(s.value for s in result.samples if s.metric == metric), "ns")}


def reduction(data: Data, claim: Claim) -> Decision:
    """Compare the least reduction, over all numbers of workers and both systems."""
    own = data.series("total_time", "workers", series="KRCore")
    others = [data.series("total_time", "workers", series=s) for s in _control.SERIES]
    least = min(float((1 - own / other).min()) for other in others)
    return Decision(None, 100 * least, f"least over {len(own)} numbers of workers, {claim.unit}")


def order(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide the rank: KRCore is orders of magnitude below LITE, LITE below verbs."""
    verbs, lite, own = (data.value("total_time", "s", series=s, workers=MANY) for s in SERIES)
    text = f"{own * 1e6:.0f} us, {lite:.2f} s, {verbs:.2f} s"
    return Decision(ORDERS * own < lite < verbs, text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the time over the workers."""
    fig, ax = figures.new()
    for number, series in enumerate(SERIES):
        found = data.series("total_time", "workers", "ms", series=series)
        name = series if series == "KRCore" else f"{series}, one node of the mesh"
        ax.plot(list(found.index), list(found), label=name, **figures.style_of(number))
    _axes.layer(ax)
    # Side by side: 2.3 s and 2.7 s are nearly one place.
    places = {"verbs": MANY - 6, "LITE": MANY + 8, "KRCore": MANY}
    points = [(claims[f"krcore/f8b_{s.lower()}_240"], places[s]) for s in SERIES]
    figures.overlay(ax, points, unit="ms")
    ax.set_yscale("log")
    ax.set(xlabel="Workers", ylabel="Time until all are connected (ms)", xlim=(0, 262))
    ax.legend()
    return fig


def at(series: str) -> Any:
    """Return the decider of one system's time at 240 workers."""
    return decide.value("total_time", series=series, workers=MANY)


DECIDES: dict[str, Any] = {
    "krcore/f8b_krcore_240": at("KRCore"),
    "krcore/f8b_verbs_240": at("verbs"),
    "krcore/f8b_lite_240": at("LITE"),
    "krcore/f8b_reduction": reduction,
    "krcore/f8b_rank": order,
}

experiment = Experiment(
    id="krcore/fig8b",
    title="Full mesh of connections between workers",
    profile="krcore",
    axes={
        "series": Axis(SERIES),
        "workers": Axis([20, 60, MANY], full=[20, 40, 80, 120, 160, 200, MANY], unit="workers"),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_control.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
