"""Median and 99th percentile of PUTs against the load (figure 7).

The load is the number of clients, with updates alone on four servers. The paper's light load is one
client, its heavy load 500,000 operations per second of all servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _misses, _store
from pyrdma import Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAVY = 500e3  # op/s
LIGHT = {"clients": 1, "costs": "ramcloud"}
PERCENTILES = {50: "median", 99: "99th percentile"}


def measure(point: Point) -> Any:
    """Measure one number of clients."""
    result = _store.run(point, point["clients"], 1.0, point["series"], point["costs"])
    return _store.measured(result, 1.0)


def ratios(data: Data, percentile: int) -> tuple[float, float]:
    """Return RAMCloud's latency as a multiple of Tailwind's, at light and at heavy load."""
    metric = f"put_p{percentile}"
    light = [data.value(metric, "us", series=s, **LIGHT) for s in _store.SYSTEMS]
    heavy = [
        _store.interpolated(data, metric, HEAVY, "us", series=s, costs="ramcloud")
        for s in _store.SYSTEMS
    ]
    return light[0] / light[1], heavy[0] / heavy[1]


def gap_grows(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the ratios of both percentiles grow with the load."""
    found = {name: ratios(data, p) for p, name in PERCENTILES.items()}
    text = "; ".join(f"{name} {a:.2f} to {b:.2f}" for name, (a, b) in found.items())
    return Decision(all(b > a for a, b in found.values()), text)


def tailwind_faster(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether Tailwind is faster at both loads and percentiles."""
    found = [ratio for p in PERCENTILES for ratio in ratios(data, p)]
    return Decision(min(found) > 1, f"{min(found):.2f} to {max(found):.2f} times")


def decides() -> dict[str, Any]:
    """Return the deciders of the eight latencies."""
    found: dict[str, Any] = {
        "tailwind/fig7_gap_grows_with_load": gap_grows,
        "tailwind/fig7_rank": tailwind_faster,
    }
    for system in _store.SYSTEMS:
        for p in PERCENTILES:
            found[f"tailwind/fig7_p{p}_light_{system}"] = decide.value(
                f"put_p{p}", series=system, **LIGHT
            )
            found[f"tailwind/fig7_p{p}_heavy_{system}"] = _store.at_load(
                f"put_p{p}", HEAVY, "us", series=system, costs="ramcloud"
            )
    return found


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw a panel for each percentile, over the throughput."""
    fig, panels = figures.new(1, 2)
    for ax, (p, name) in zip(panels, PERCENTILES.items(), strict=True):
        for number, system in enumerate(_store.SYSTEMS):
            for cost in _store.COSTS:
                where = {"series": system, "costs": cost}
                rates = data.series("throughput", "clients", "op/s", **where) / 1e3
                values = data.series(f"put_p{p}", "clients", "us", **where)
                style = dict(figures.style_of(number))
                label = _store.NAMES[system]
                if cost == "measured":
                    style.update(linestyle=":", linewidth=1.0, markersize=3)
                    label += ", our costs"
                ax.plot(list(rates), list(values), label=label, **style)
            points = [(claims[f"tailwind/fig7_p{p}_heavy_{system}"], HEAVY / 1e3)]
            figures.overlay(ax, points, unit="us", names=_store.NAMES, first=number)
        ax.set(title=name, xlabel="Throughput of four servers (KOp/s)")
        _axes.logarithmic(ax)
    panels[0].set_ylabel("PUT latency (µs)")
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="tailwind/fig7",
    title="Latency of PUTs against the load",
    profile="r320",
    axes=_store.axes_of([1, 4, 8, 12, 16, 20, 24, 30], [1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 25, 30]),
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides=decides(),
    misses=_misses.of("fig7"),
)
