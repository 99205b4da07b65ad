"""What one PUT costs RAMCloud in messages and waiting (figure 1, a diagram).

One client writes, so each PUT is replicated alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.tailwind import _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALONE = "the store keeps three replicas, and one client's updates are replicated one by one"


def measure(point: Point) -> Any:
    """Count requests of one client's PUTs, and the time that its worker waits for backups."""
    result = _store.run(point, 1, 1.0, point["series"], keys=1000, preload="replicated")
    appends = _store.total(result, "appends")
    rpcs = _store.total(result, "replication_rpcs") / appends
    writes = _store.total(result, "replication_writes") / appends
    waited = _store.total(result, "replication_cores") * result.value("elapsed") / appends
    return {
        "replications": (rpcs + writes, "count"),
        "requests": (1 + rpcs, "count"),
        "wait": (waited, "ns"),
    }


def few_microseconds(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a worker waits longer than a microsecond and shorter than a context switch."""
    wait = data.value("wait", "us", series="ramcloud")
    return Decision(1 < wait < 10, f"{wait:.1f} us")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the requests that servers take for a PUT, and the wait of the worker."""
    fig, (left, right) = figures.new(1, 2)
    names = [_store.NAMES[s] for s in _store.SYSTEMS]
    requests = [data.value("requests", "count", series=s) for s in _store.SYSTEMS]
    waits = [data.value("wait", "us", series=s) for s in _store.SYSTEMS]
    for ax, values, label in (
        (left, requests, "Requests that servers take per PUT"),
        (right, waits, "Wait for backups per PUT (µs)"),
    ):
        ax.bar(names, values, color=["0.35", "0.75"], edgecolor="black", width=0.6)
        ax.bar_label(ax.containers[0], fmt="{:.1f}", padding=5)
        ax.set(ylabel=label, ylim=(0, 1.15 * max(values)))
    times = claims["tailwind/replication_message_multiplier"]
    figures.overlay(left, [(times, 0)], unit="x", names={"ramcloud": "requests of RAMCloud"})
    left.legend()
    return fig


experiment = Experiment(
    id="tailwind/fig1",
    title="Flow of a replicated PUT",
    profile="r320",
    axes={"series": Axis(_store.SYSTEMS)},
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/writes_to_three_replications": decide.by_construction(
            decide.value("replications", series="ramcloud"), ALONE
        ),
        "tailwind/replication_message_multiplier": decide.by_construction(
            decide.value("requests", series="ramcloud"), ALONE
        ),
        "tailwind/backup_response_few_us": few_microseconds,
    },
)
