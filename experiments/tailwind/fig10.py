"""Busy share of dispatch threads and workers against the clients, three mixes (figure 10)."""

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

AT: dict[str, Any] = {"clients": _store.CLIENTS, "costs": "ramcloud"}


def measure(point: Point) -> Any:
    """Measure one number of clients."""
    puts = point["puts"]
    result = _store.run(point, point["clients"], puts, point["series"], point["costs"])
    return _store.measured(result, puts)


def saved(kind: str, puts: float) -> Any:
    """Compare Tailwind's busy cores with RAMCloud's at equal clients."""
    of, to = {"series": "tailwind"}, {"series": "ramcloud"}
    return _store.change(kind, of, to, puts=puts, **AT)


def saving_grows(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the saving of workers grows as the share of PUTs falls."""
    found = {}
    for puts in (1.0, 0.5, 0.05):
        ramcloud, tailwind = (
            data.value("worker_cores", series=s, puts=puts, **AT) for s in _store.SYSTEMS
        )
        found[puts] = 100 * (1 - tailwind / ramcloud)
    values = list(found.values())
    text = ", ".join(f"{puts:.0%}: {value:.0f} %" for puts, value in found.items())
    return Decision(values[0] < values[1] < values[2], text)


def dispatch_by_mix(data: Data, claim: Claim) -> Decision:
    """Decide whether Tailwind's dispatch load does not fall as the share of PUTs falls."""
    found = [
        data.value("dispatch_cores", series="tailwind", puts=puts, **AT)
        for puts in (1.0, 0.5, 0.05)
    ]
    text = ", ".join(f"{value / _store.SERVERS:.0%}" for value in found)
    return Decision(found[-1] >= found[0] * (1 - claim.tolerance), text)


CHANGES = {0.05: "5put", 0.5: "50put", 1.0: "writeonly"}
"""End of the names of the claims on Tailwind's change of a load, by the share of PUTs."""


def quoted(
    ax: Any, data: Data, claims: Mapping[str, Claim], kind: str, puts: float, scale: float
) -> None:
    """Draw the load of Tailwind that the paper's change leaves of RAMCloud's."""
    claim = claims.get(f"tailwind/fig10_{kind}_{CHANGES[puts]}")
    if claim is None or claim.number is None:
        return
    clients = data.values_of("clients")[-1]
    at: dict[str, Any] = {"series": "ramcloud", "puts": puts, "costs": "ramcloud"}
    load = data.value(f"{kind}_cores", "cores", clients=clients, **at)
    left = load * scale * (1 + claim.number / 100)
    _axes.hollow(ax, clients, left, "paper: Tailwind, by the change", "s")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw dispatch above, workers and their part in replication below."""
    fig, rows = figures.new(2, 3)
    servers = _store.SERVERS
    for column, (puts, name) in enumerate(_store.MIXES.items()):
        top, bottom = rows[0][column], rows[1][column]
        where: dict[str, Any] = {"puts": puts, "scale": 100 / servers, "costs": ("ramcloud",)}
        _store.draw(top, data, "dispatch_cores", "clients", "cores", **where)
        where["scale"] = 100 / servers / 7
        _store.draw(bottom, data, "worker_cores", "clients", "cores", **where)
        for number, system in enumerate(_store.SYSTEMS):
            found = data.series(
                "replication_cores", "clients", "cores", series=system, puts=puts, costs="ramcloud"
            )
            style = dict(figures.style_of(number))
            style.update(linestyle="--", markerfacecolor="none")
            label = f"{_store.NAMES[system]}, replication"
            bottom.plot(list(found.index), list(found * 100 / servers / 7), label=label, **style)
        quoted(top, data, claims, "dispatch", puts, 100 / servers)
        quoted(bottom, data, claims, "worker", puts, 100 / servers / 7)
        top.set_title(name)
        bottom.set_xlabel("Clients")
        _axes.from_zero(top, bottom)
    rows[0][0].set_ylabel("Dispatch busy (%)")
    rows[1][0].set_ylabel("Workers busy (%)")
    figures.legend_below(list(rows[1]))
    return fig


experiment = Experiment(
    id="tailwind/fig10",
    title="Utilisation of dispatch threads and workers",
    profile="r320",
    axes={
        **_store.axes_of([4, 16, 30], [1, 2, 4, 6, 8, 12, 16, 20, 25, 30]),
        "costs": Axis(["ramcloud"], full=list(_store.COSTS)),
        "puts": Axis(list(_store.MIXES)),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/fig10_worker_writeonly": saved("worker_cores", 1.0),
        "tailwind/fig10_dispatch_writeonly": saved("dispatch_cores", 1.0),
        "tailwind/fig10_worker_50put": saved("worker_cores", 0.5),
        "tailwind/fig10_worker_5put": saved("worker_cores", 0.05),
        "tailwind/fig10_worker_saving_trend": saving_grows,
        "tailwind/fig10_dispatch_5put_higher": decide.rank(
            "dispatch_cores", [{"series": "tailwind"}, {"series": "ramcloud"}], puts=0.05, **AT
        ),
        "tailwind/fig10_dispatch_not_reduced_with_fewer_writes": dispatch_by_mix,
        "tailwind/fig10_replication_share_writeonly_ramcloud": decide.value(
            "replication_share", series="ramcloud", puts=1.0, **AT
        ),
        "tailwind/fig10_replication_share_5put_ramcloud": decide.value(
            "replication_share", series="ramcloud", puts=0.05, **AT
        ),
        "tailwind/fig10_replication_share_5put_tailwind": decide.value(
            "replication_share", series="tailwind", puts=0.05, **AT
        ),
    },
    misses=_misses.of("fig10"),
)
