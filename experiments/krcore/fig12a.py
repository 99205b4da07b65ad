"""Parts of the latency of one READ: what each step of KRCore adds to verbs (figure 12a).

The steps are added in the order of ambiguity fig12a_order. The first runs KRCore without checks of
remote regions, on a reliable connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _misses, _one_sided
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "verbs": ("verbs", {}),
    "+System call": ("KRCore(RC)", {"check_regions": False}),
    "+Checks": ("KRCore(RC)", {}),
    "+DCQP": ("KRCore(DC)", {}),
    "+MR miss": ("KRCore(DC)", {"miss": True}),
}


def measure(point: Point) -> Any:
    """Measure one client with the steps so far."""
    series, options = STEPS[str(point["series"])]
    result = _one_sided.one_sided(point, series, "read", 1, **options)
    return {"latency": (result.latency("read").mean, "ns")}


def added(data: Data) -> dict[str, float]:
    """Return what each step adds, in microseconds."""
    found = {s: data.value("latency", "us", series=s) for s in STEPS}
    return {later: found[later] - found[earlier] for earlier, later in pairwise(STEPS)}


def adds(step: str) -> Any:
    """Compare what a step adds with the claim."""

    def decider(data: Data, claim: Claim) -> Decision:
        return Decision(None, added(data)[step], f"{claim.unit} more than the step before")

    return decider


def order(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide the rank: a miss of a region, then the system call, then the other two."""
    found = added(data)
    small = max(found["+DCQP"], found["+Checks"])
    text = ", ".join(f"{step} {value:.2f}" for step, value in found.items())
    return Decision(found["+MR miss"] > found["+System call"] > small, f"{text} us")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the latency with the steps so far."""
    fig, ax = figures.new()
    found = [data.value("latency", "us", series=s) for s in STEPS]
    figures.bars(ax, list(STEPS), {"measured": found})
    _axes.write_inside(ax)
    figures.overlay(
        ax,
        [(claims["krcore/f12a_verbs"], 0), (claims["krcore/f12a_with_syscall"], 1)],
        unit="us",
    )
    miss = claims["krcore/f12a_mr_miss"]
    if miss.number is not None:
        _axes.hollow(ax, 4, found[3] + miss.number, "paper: 4.5 µs more for the miss", "^")
    ax.set(ylabel="Mean latency of a READ of 8 B (µs)", ylim=(0, 1.25 * max(found)))
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/f12a_verbs": decide.value("latency", series="verbs"),
    "krcore/f12a_with_syscall": decide.value("latency", series="+System call"),
    "krcore/f12a_syscall": adds("+System call"),
    "krcore/f12a_checks": adds("+Checks"),
    "krcore/f12a_dcqp": adds("+DCQP"),
    "krcore/f12a_mr_miss": adds("+MR miss"),
    "krcore/f12a_rank": order,
}

experiment = Experiment(
    id="krcore/fig12a",
    title="Factor analysis of a READ of 8 B",
    profile="krcore",
    axes={"series": Axis(list(STEPS))},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "a process enters no kernel to call the service"},
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
