"""Throughput and busy workers against the worker cores of a machine (figure 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _misses, _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUTS = 0.5
ON = {"costs": "ramcloud"}
GAIN = 1.02  # of one more core: below it the throughput has ended to grow


def measure(point: Point) -> Any:
    """Measure one number of workers under 30 clients."""
    result = _store.run(
        point,
        _store.CLIENTS,
        PUTS,
        point["series"],
        point["costs"],
        workers=point["workers"],
    )
    found = _store.measured(result, PUTS)
    most = max(s.value for s in result.samples if s.metric == "most_workers")
    found["most_workers"] = (most, "count")
    return found


def saturated_at(data: Data, system: str) -> int:
    """Return the workers after which no further one brings more."""
    found = data.series("throughput", "workers", series=system, **ON)
    for workers in found.index:
        rest = found[found.index > workers]
        if rest.empty or float(rest.max()) < GAIN * float(found[workers]):
            return int(workers)
    return int(found.index[-1])


def saturation(system: str) -> Any:
    """Compare the number of workers at which the throughput ends to grow."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        return Decision(None, float(saturated_at(data, system)))

    return decider


def plateau(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether both end with busy dispatch threads, Tailwind higher."""
    texts, busy, rates = [], [], []
    for system in _store.SYSTEMS:
        where: dict[str, Any] = {"series": system, "workers": 7, **ON}
        share = data.value("dispatch_cores", **where) / _store.SERVERS
        rate = data.value("throughput", **where) / 1e3
        busy.append(share > 0.9)
        rates.append(rate)
        texts.append(f"{_store.NAMES[system]} {rate:.0f} KOp/s, dispatch {share:.0%}")
    return Decision(all(busy) and rates[1] > rates[0], "; ".join(texts))


def overallocated(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a server with one configured worker has had more at once."""
    most = data.value("most_workers", series="ramcloud", workers=1, **ON)
    return Decision(most > 1, f"{most:.0f} workers at once")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw throughput as lines and busy workers as bars."""
    fig, (left, right) = figures.new(1, 2)
    _store.draw(left, data, "throughput", "workers", "op/s", scale=1e-3)
    points = [(claims[f"tailwind/fig11_1core_{s}"], 1) for s in _store.SYSTEMS]
    figures.overlay(left, points, unit="KOp/s", names=_store.NAMES)
    _store.draw(right, data, "worker_cores", "workers", "cores")
    points = [(claims[f"tailwind/fig11_1core_{s}_cores"], 1) for s in _store.SYSTEMS]
    figures.overlay(right, points, unit="cores", names=_store.NAMES)
    left.set_ylabel("Throughput of four servers (KOp/s)")
    right.set_ylabel("Busy workers of four servers")
    for ax in (left, right):
        ax.set_xlabel("Worker cores per machine")
    _axes.from_zero(left, right)
    figures.legend_below((left, right))
    return fig


experiment = Experiment(
    id="tailwind/fig11",
    title="Scaling with worker cores",
    profile="r320",
    axes={
        "series": Axis(_store.SYSTEMS),
        "costs": Axis(list(_store.COSTS)),
        "workers": Axis([1, 2, 3, 5, 7], full=list(range(1, 8))),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/fig11_1core_ramcloud": decide.value(
            "throughput", series="ramcloud", workers=1, **ON
        ),
        "tailwind/fig11_1core_tailwind": decide.value(
            "throughput", series="tailwind", workers=1, **ON
        ),
        "tailwind/fig11_1core_ramcloud_cores": decide.value(
            "worker_cores", series="ramcloud", workers=1, **ON
        ),
        "tailwind/fig11_1core_tailwind_cores": decide.value(
            "worker_cores", series="tailwind", workers=1, **ON
        ),
        "tailwind/fig11_ramcloud_saturates": saturation("ramcloud"),
        "tailwind/fig11_tailwind_scales": saturation("tailwind"),
        "tailwind/fig11_plateau_dispatch": plateau,
        "tailwind/fig11_overallocation": overallocated,
    },
    misses=_misses.of("fig11"),
)
