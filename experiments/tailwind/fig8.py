"""Throughput of an active primary against the number of active primaries (figure 8).

Four servers are up; the table lies on one to four of them. Backups of the others do the replication
of RAMCloud.
"""

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

ON = {"costs": "ramcloud"}
PANELS = {0.05: "YCSB-B", 0.5: "YCSB-A", 1.0: "WRITE-ONLY"}


def measure(point: Point) -> Any:
    """Measure one number of primaries under 30 clients."""
    puts, active = point["puts"], point["primaries"]
    result = _store.run(
        point, _store.CLIENTS, puts, point["series"], point["costs"], primaries=active
    )
    found = _store.measured(result, puts)
    found["throughput_per_primary"] = (result.value("rate") / active, "op/s")
    updates = _store.total(result, "appends")
    found["rpcs_per_write"] = (_store.total(result, "replication_rpcs") / updates, "count")
    return found


def gain_grows(puts: float) -> Any:
    """Decide whether the gain with all primaries is larger than with one, and never falls much."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        found = _store.gains(data, "throughput_per_primary", "primaries", puts=puts, **ON)
        text = ", ".join(f"{n}: {gain:.0f} %" for n, gain in found.items())
        return Decision(bool(found.iloc[-1] > found.iloc[0]), text)

    return decider


def per_primary(direction: str, metric: str) -> Any:
    """Decide whether a throughput rises or falls with the primaries, for all mixes and systems."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        texts, holds = [], True
        for system in _store.SYSTEMS:
            for puts, name in PANELS.items():
                found = data.series(metric, "primaries", series=system, puts=puts, **ON) / 1e3
                first, last = float(found.iloc[0]), float(found.iloc[-1])
                holds = holds and (last > first if direction == "rises" else last < first)
                texts.append(f"{_store.NAMES[system]} {name} {first:.0f} to {last:.0f}")
        return Decision(holds, "; ".join(texts) + " KOp/s")

    return decider


def servers_limit(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether more primaries always bring more: then the servers were the bottleneck."""
    texts, holds = [], True
    for system in _store.SYSTEMS:
        for puts, name in PANELS.items():
            found = data.series("throughput", "primaries", series=system, puts=puts, **ON)
            least = float((found / found.shift(1)).min())
            holds = holds and least > 1
            texts.append(f"{_store.NAMES[system]} {name} {least:.2f}")
    return Decision(holds, "least gain of one more primary: " + ", ".join(texts))


QUOTED = {1: "one_primary", 4: "four_primaries"}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw a panel for each mix, and what the quoted gains make of RAMCloud's throughput."""
    fig, panels = figures.new(1, 3)
    for ax, (puts, name) in zip(panels, PANELS.items(), strict=True):
        _store.draw(ax, data, "throughput_per_primary", "primaries", "op/s", scale=1e-3, puts=puts)
        ax.set(title=name, xlabel="Active primaries", xticks=[1, 2, 3, 4])
        _axes.from_zero(ax)
    at = {"series": "ramcloud", "puts": 0.05, "costs": "ramcloud"}
    alone = data.series("throughput_per_primary", "primaries", "KOp/s", **at)
    for primaries, name in QUOTED.items():
        gain = claims[f"tailwind/fig8a_{name}_gain"].number
        if gain is not None and primaries in alone.index:
            y = float(alone[primaries]) * (1 + gain / 100)
            _axes.hollow(panels[0], primaries, y, "paper: Tailwind, by the gain", "s")
    panels[0].set_ylabel("Throughput per active primary (KOp/s)")
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="tailwind/fig8",
    title="Throughput per active primary",
    profile="r320",
    axes={
        "series": Axis(_store.SYSTEMS),
        "costs": Axis(list(_store.COSTS)),
        "puts": Axis(list(PANELS)),
        "primaries": Axis([1, 2, 3, 4]),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/fig8a_one_primary_gain": _store.change(
            "throughput_per_primary",
            {"series": "tailwind"},
            {"series": "ramcloud"},
            puts=0.05,
            primaries=1,
            **ON,
        ),
        "tailwind/fig8a_four_primaries_gain": _store.change(
            "throughput_per_primary",
            {"series": "tailwind"},
            {"series": "ramcloud"},
            puts=0.05,
            primaries=4,
            **ON,
        ),
        "tailwind/fig8a_gain_grows": gain_grows(0.05),
        "tailwind/fig8b_gain_grows": gain_grows(0.5),
        "tailwind/fig8c_gain_grows": gain_grows(1.0),
        "tailwind/fig8_per_primary_declines": per_primary("falls", "throughput_per_primary"),
        "tailwind/fig8_aggregate_rises": per_primary("rises", "throughput"),
        "tailwind/fig8_servers_bottleneck": servers_limit,
        "tailwind/fig8_rpcs_removed_per_write": decide.value(
            "rpcs_per_write", series="ramcloud", puts=1.0, primaries=4, **ON
        ),
    },
    misses=_misses.of("fig8") | _misses.of("fig8a"),
)
