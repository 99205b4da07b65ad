"""Time to recover the objects of one primary with ten backups (figure 12).

Eleven servers; one of them has all objects, replicated three times at random. It is killed. The
time counts from the kill; its part until the coordinator knows that the server is dead is shown
beside it. A server recovers at most 2 million records, RAMCloud's bound, so one server recovers a
million objects and five recover ten million. ``ten`` cuts Tailwind's ten million for ten servers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _misses, _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data, NotEvaluated
from pyrdma.decide import Decision
from pyrdma.systems.tailwind import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = {100_000: "0.1 M", 1_000_000: "1 M", 10_000_000: "10 M"}
PHASES = ("detected", "inventory", "lease", "replay")
MASTERS = {"paper": 2_000_000, "ten": None}


def measure(point: Point) -> Any:
    """Fill one server, kill it, and wait for its recovery."""
    objects = point["objects"]
    records = MASTERS[point["masters"]]
    with point.cluster(nodes=12) as cluster:
        store = Store(
            cluster,
            replication=point["series"],
            replicas=3,
            log_bytes=(64 << 20) + objects * 256,
            keys=objects,
            partition_records=objects // 10 if records is None else records,
        )
        store.fill(objects, value_bytes=100, primary=0)
        recovery = store.crash(0).recovery
    found = {f"{phase}_time": (getattr(recovery, f"{phase}_s"), "s") for phase in PHASES}
    return {
        **found,
        "recovery_time": (recovery.total_s, "s"),
        "partitions": (float(recovery.partitions), "count"),
        "objects_found": (float(recovery.objects), "count"),
    }


def is_run(params: Mapping[str, Any]) -> bool:
    """Cut the work for ten servers only where it is most, and only Tailwind's."""
    is_most = params["objects"] == max(SIZES) and params["series"] == "tailwind"
    return bool(params["masters"] == "paper" or is_most)


def no_overhead(data: Data, claim: Claim) -> Decision:
    """Decide whether both systems take the same time, within the tolerance."""
    texts, holds = [], True
    for objects in sizes_of_paper(data):
        ramcloud, tailwind = (
            data.value("recovery_time", "s", series=s, objects=objects, masters="paper")
            for s in _store.SYSTEMS
        )
        ratio = tailwind / ramcloud
        holds = holds and abs(ratio - 1) <= claim.tolerance
        texts.append(f"{SIZES[int(objects)]}: {ratio:.2f}")
    return Decision(holds, "Tailwind / RAMCloud: " + ", ".join(texts))


def sizes_of_paper(data: Data) -> list[int]:
    """Return the paper's numbers of objects, which a quick run does not have."""
    sizes = [int(objects) for objects in data.values_of("objects") if objects >= 1_000_000]
    if not sizes:
        raise NotEvaluated("a quick run recovers fewer objects than the paper's")
    return sizes


def metadata_small(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the inventory, scans included, is a tenth of the recovery or less."""
    shares = []
    for objects in sizes_of_paper(data):
        where = {"series": "tailwind", "objects": objects, "masters": "paper"}
        whole = data.value("recovery_time", "s", **where)
        shares.append(data.value("inventory_time", "s", **where) / whole)
    return Decision(max(shares) <= 0.1, f"at most {max(shares):.1%} of the time")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw stacked bars of the phases, for each size and system."""
    fig, ax = figures.new(wide=True)
    labels, place = [], 0
    for objects in data.values_of("objects"):
        for masters, system in itertools.product(data.values_of("masters"), _store.SYSTEMS):
            where = {"series": system, "objects": objects, "masters": masters}
            if not is_run(where):
                continue
            bottom = 0.0
            for number, phase in enumerate(PHASES):
                seconds = data.value(f"{phase}_time", "s", **where)
                shade = str(0.25 + 0.2 * number)
                ax.bar(
                    place,
                    seconds,
                    bottom=bottom,
                    color=shade,
                    edgecolor="black",
                    linewidth=0.6,
                    label=phase if place == 0 else None,
                )
                bottom += seconds
            name = {1_000_000: "1m", 10_000_000: "10m"}.get(int(objects))
            if name is not None and masters == "paper":
                figures.overlay(ax, [(claims[f"tailwind/fig12_{name}_{system}"], place)], unit="s")
            cut = "" if masters == "paper" else "\n10 servers"
            labels.append(f"{SIZES[int(objects)]}\n{_store.NAMES[system]}{cut}")
            place += 1
        place += 1
        labels.append("")
    ax.set_xticks(range(len(labels) - 1), labels[:-1])
    ax.set_ylabel("Time from the kill (s)")
    _axes.from_zero(ax)
    handles, names = ax.get_legend_handles_labels()
    unique = dict(zip(names, handles, strict=True))
    ax.legend(list(unique.values()), list(unique))
    return fig


def at(system: str, objects: int) -> Any:
    """Return the decider of one bar."""
    return decide.value("recovery_time", series=system, objects=objects, masters="paper")


experiment = Experiment(
    id="tailwind/fig12",
    title="Time to recover with ten backups",
    profile="r320",
    axes={
        "series": Axis(_store.SYSTEMS),
        "objects": Axis([100_000], full=[1_000_000, 10_000_000]),
        "masters": Axis(["paper"], full=list(MASTERS)),
    },
    where=is_run,
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "see tests and pyrdma bench",
        "verbs": "the script's cluster is of one process",
    },
    decides={
        "tailwind/fig12_1m_tailwind": at("tailwind", 1_000_000),
        "tailwind/fig12_1m_ramcloud": at("ramcloud", 1_000_000),
        "tailwind/fig12_10m_tailwind": at("tailwind", 10_000_000),
        "tailwind/fig12_10m_ramcloud": at("ramcloud", 10_000_000),
        "tailwind/fig12_no_overhead": no_overhead,
        "tailwind/fig12_metadata_rebuild_small": metadata_small,
    },
    misses=_misses.of("fig12"),
)
