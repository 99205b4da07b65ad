"""Busy share of dispatch thread and workers of one RAMCloud server, mostly reads (figure 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _store
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUTS = 0.05
SATURATED = 0.95
WORKERS = 7
ON = {"costs": "ramcloud"}


def measure(point: Point) -> Any:
    """Measure one number of clients; the table lies on one of four servers."""
    result = _store.run(
        point, point["clients"], PUTS, "ramcloud", point["costs"], primaries=1, seconds=0.002
    )
    first = {s.metric: s.value for s in result.samples if s.node == 0}
    return {
        "dispatch": (first["dispatch_cores"], "fraction"),
        "workers": (first["worker_cores"] / WORKERS, "fraction"),
        "throughput": (result.value("rate"), "op/s"),
    }


def saturation(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Return the fewest clients that keep the dispatch thread busy."""
    found = data.series("dispatch", "clients", **ON)
    busy = found[found >= SATURATED]
    if busy.empty:
        return Decision(False, f"{found.max():.0%} at {found.idxmax()} clients")
    return Decision(None, float(busy.index[0]), f"{busy.iloc[0]:.0%} busy")


def workers_idle(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether workers have time left when the dispatch thread has none."""
    dispatch, workers = (data.series(m, "clients", **ON) for m in ("dispatch", "workers"))
    last = dispatch.index[-1]
    text = f"at {last} clients: dispatch {dispatch[last]:.0%}, workers {workers[last]:.0%}"
    return Decision(bool(workers.max() < 0.9 and dispatch[last] > workers[last]), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both shares over the clients."""
    fig, ax = figures.new()
    for number, (metric, name) in enumerate({"dispatch": "Dispatch", "workers": "Workers"}.items()):
        for cost in _store.COSTS:
            found = 100 * data.series(metric, "clients", costs=cost)
            style = dict(figures.style_of(number))
            label = name
            if cost == "measured":
                style.update(linestyle=":", linewidth=1.0, markersize=3)
                label += ", our costs"
            ax.plot(list(found.index), list(found), label=label, **style)
    onset = claims["tailwind/fig2_dispatch_saturation"].value
    ax.axvline(float(onset), color="black", linewidth=1, linestyle="--", label="paper: saturated")
    ax.set(xlabel="Clients", ylabel="Busy (%)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="tailwind/fig2",
    title="Utilisation of one RAMCloud server, 95 % reads",
    profile="r320",
    axes={
        "costs": Axis(list(_store.COSTS)),
        "clients": Axis([1, 2, 4, 6, 8, 10, 14], full=list(range(1, 21))),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/fig2_dispatch_saturation": saturation,
        "tailwind/fig2_workers_underused": workers_idle,
        "tailwind/fig2_read_heavy_dispatch_bound": workers_idle,
    },
)
