"""Busy cores of four servers at a given load of updates (figure 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _misses, _store
from pyrdma import Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOAD = 450e3  # op/s
ON = {"costs": "ramcloud"}
KINDS = {"worker_cores": "worker", "dispatch_cores": "dispatch"}


def measure(point: Point) -> Any:
    """Measure one number of clients."""
    result = _store.run(point, point["clients"], 1.0, point["series"], point["costs"])
    return _store.measured(result, 1.0)


def cores(data: Data, kind: str) -> tuple[float, float]:
    """Return the busy cores of both systems at the paper's load."""
    ramcloud, tailwind = (
        _store.interpolated(data, kind, LOAD, "cores", series=s, **ON) for s in _store.SYSTEMS
    )
    return ramcloud, tailwind


def worker_ratio(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare RAMCloud's workers with Tailwind's."""
    ramcloud, tailwind = cores(data, "worker_cores")
    return Decision(None, ramcloud / tailwind, f"{ramcloud:.1f} to {tailwind:.1f} cores")


def dispatch_ratio(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare Tailwind's dispatch threads with RAMCloud's."""
    ramcloud, tailwind = cores(data, "dispatch_cores")
    return Decision(None, tailwind / ramcloud, f"{tailwind:.2f} to {ramcloud:.2f} cores")


def dispatch_gains_more(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the saving is larger on dispatch than on workers."""
    found = {name: cores(data, kind) for kind, name in KINDS.items()}
    worker, dispatch = (a / b for a, b in found.values())
    return Decision(dispatch > worker, f"dispatch {dispatch:.1f}, workers {worker:.1f} times")


def replication_dominates(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether RAMCloud's busy cores beyond Tailwind's are more than Tailwind's."""
    found = [cores(data, kind) for kind in KINDS]
    ramcloud, tailwind = sum(a for a, _ in found), sum(b for _, b in found)
    share = 1 - tailwind / ramcloud
    return Decision(share > 0.5, f"{share:.0%} of RAMCloud's {ramcloud:.1f} busy cores")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw workers and dispatch threads over the throughput."""
    fig, panels = figures.new(1, 2)
    for ax, (kind, name) in zip(panels, KINDS.items(), strict=True):
        for number, system in enumerate(_store.SYSTEMS):
            for cost in _store.COSTS:
                where = {"series": system, "costs": cost}
                rates = data.series("throughput", "clients", "op/s", **where) / 1e3
                style = dict(figures.style_of(number))
                label = _store.NAMES[system]
                if cost == "measured":
                    style.update(linestyle=":", linewidth=1.0, markersize=3)
                    label += ", our costs"
                values = data.series(kind, "clients", "cores", **where)
                ax.plot(list(rates), list(values), label=label, **style)
            if kind == "worker_cores":
                points = [(claims[f"tailwind/fig9_workers_{system}"], LOAD / 1e3)]
                figures.overlay(ax, points, unit="cores", names=_store.NAMES, first=number)
        ax.set(title=f"{name} cores", xlabel="Throughput of four servers (KOp/s)")
        _axes.from_zero(ax)
    panels[0].set_ylabel("Busy cores of four servers")
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="tailwind/fig9",
    title="Busy cores at a given load of updates",
    profile="r320",
    axes=_store.axes_of([1, 4, 8, 12, 16, 20, 30], [1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 25, 30]),
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/fig9_workers_tailwind": _store.at_load(
            "worker_cores", LOAD, "cores", series="tailwind", **ON
        ),
        "tailwind/fig9_workers_ramcloud": _store.at_load(
            "worker_cores", LOAD, "cores", series="ramcloud", **ON
        ),
        "tailwind/fig9_worker_ratio": worker_ratio,
        "tailwind/fig9_dispatch_ratio": dispatch_ratio,
        "tailwind/fig9_dispatch_gain_larger": dispatch_gains_more,
        "tailwind/fig9_replication_dominates": replication_dominates,
    },
    misses=_misses.of("fig9"),
)
