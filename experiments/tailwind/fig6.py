"""Throughput of a server against the number of clients, for three mixes (figure 6)."""

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

PEAK: dict[str, Any] = {"costs": "ramcloud"}


def measure(point: Point) -> Any:
    """Measure one number of clients."""
    puts = point["puts"]
    result = _store.run(point, point["clients"], puts, point["series"], point["costs"])
    return _store.measured(result, puts)


def peak(data: Data, system: str, puts: float) -> float:
    """Return the highest throughput of a server, in op/s."""
    return float(
        data.series("throughput_per_server", "clients", series=system, puts=puts, **PEAK).max()
    )


def gain(puts: float) -> Any:
    """Compare the peaks of both systems."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        ramcloud, tailwind = (peak(data, system, puts) for system in _store.SYSTEMS)
        text = f"{tailwind / 1e3:.0f} to {ramcloud / 1e3:.0f} KOp/s"
        return Decision(None, 100 * (tailwind / ramcloud - 1), text)

    return decider


def gain_by_mix(data: Data, claim: Claim) -> Decision:
    """Decide whether the gain rises from 5 % to 50 % and then no further."""
    ratios = [peak(data, "tailwind", puts) / peak(data, "ramcloud", puts) for puts in _store.MIXES]
    few, half, all_puts = ratios
    holds = half > few and all_puts <= half * (1 + claim.tolerance)
    return Decision(holds, ", ".join(f"{ratio:.2f}" for ratio in ratios))


def reads_gain(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether Tailwind's peak is higher where 95 % of the operations are reads."""
    ramcloud, tailwind = (peak(data, system, 0.05) / 1e3 for system in _store.SYSTEMS)
    return Decision(tailwind > ramcloud, f"{tailwind:.0f} against {ramcloud:.0f} KOp/s")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw a panel for each mix."""
    fig, panels = figures.new(1, 3)
    numbers = {0.05: "5put", 0.5: "50put"}
    for ax, (puts, name) in zip(panels, _store.MIXES.items(), strict=True):
        _store.draw(ax, data, "throughput_per_server", "clients", "op/s", scale=1e-3, puts=puts)
        if puts in numbers:
            last = data.values_of("clients")[-1]
            points = [
                (claims[f"tailwind/fig6_{numbers[puts]}_{system}"], last)
                for system in _store.SYSTEMS
            ]
            figures.overlay(ax, points, unit="KOp/s", names=_store.NAMES)
        ax.set(title=name, xlabel="Clients")
        _axes.from_zero(ax)
    panels[0].set_ylabel("Throughput per server (KOp/s)")
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="tailwind/fig6",
    title="Throughput per server against the number of clients",
    profile="r320",
    axes={
        **_store.axes_of([1, 4, 8, 16, 30], [1, 2, 4, 6, 8, 12, 16, 20, 25, 30]),
        "puts": Axis(list(_store.MIXES)),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/fig6_5put_ramcloud": decide.extreme(
            "throughput_per_server", "clients", series="ramcloud", puts=0.05, **PEAK
        ),
        "tailwind/fig6_5put_tailwind": decide.extreme(
            "throughput_per_server", "clients", series="tailwind", puts=0.05, **PEAK
        ),
        "tailwind/fig6_50put_ramcloud": decide.extreme(
            "throughput_per_server", "clients", series="ramcloud", puts=0.5, **PEAK
        ),
        "tailwind/fig6_50put_tailwind": decide.extreme(
            "throughput_per_server", "clients", series="tailwind", puts=0.5, **PEAK
        ),
        "tailwind/fig6_50put_gain": gain(0.5),
        "tailwind/fig6_writeonly_gain": gain(1.0),
        "tailwind/fig6_gain_vs_put_fraction": gain_by_mix,
        "tailwind/fig6_reads_gain": reads_gain,
    },
    misses=_misses.of("fig6"),
)
