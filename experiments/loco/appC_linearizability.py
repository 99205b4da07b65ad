"""Linearizability of the histories of LOCO's key-value store and of Sherman (appendix C, 7.2).

The paper proves its store linearizable and measures nothing. Here 12 clients on 3 nodes look up,
insert, update and remove 4 keys in the simulator, with one random schedule per seed. A checker
searches each history for an order that explains it (``native/check``). In strong memory a write is
in place when it completes; in weak memory it is in place up to 4 us later. The last column adds
faults that a reliable connection hides (loss, delay, pauses, and others).

``loco`` takes the steps of the paper, on which the claim is judged. ``loco_best`` turns on every
switch that makes the protocol better (``native/systems/loco/README.md``).

Two series lack the fence between an update's write and the release of its lock: one of LOCO's store
on the paper's steps and one of the model of Sherman. There the next holder of the lock, or a lookup
after the update's end, may read the memory before the write. The paper corrects this bug in Sherman
(section 7.2); here it shows in weak memory only. Sherman shows it more often, because its locks lie
on the NIC: the unlock is in place before the preceding write has crossed the PCIe bus.

``pyrdma fuzz loco_store`` runs more seeds; ``pyrdma replay`` repeats one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from pyrdma import Axis, Experiment, Point, figures, fuzz
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES, OPERATIONS = 3, 1000
SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "loco": ("LOCO,\npaper", {"system": "loco_store", "preset": "paper"}),
    "loco_best": ("LOCO,\nbest", {"system": "loco_store", "preset": "best"}),
    "loco, no fence": (
        "LOCO, paper,\nwithout fence",
        {"system": "loco_store", "preset": "paper", "mutation": "unfenced"},
    ),
    "sherman": ("Sherman\n(model)", {"system": "loco_sherman"}),
    "sherman, no fence": (
        "Sherman\nwithout fence",
        {"system": "loco_sherman", "mutation": "unfenced"},
    ),
}
MEMORY = ("strong", "weak", "weak, faults")


def measure(point: Point) -> Any:
    """Count the seeds whose history is not linearizable."""
    options = fuzz.Options(
        nodes=NODES,
        operations=OPERATIONS,
        profile=point.profile,
        weak=point["memory"] != "strong",
        faults=None if point["memory"] == "weak, faults" else {},
        **SERIES[point["series"]][1],
    )
    first = 1 + (point.seed - 1) * point["seeds"]
    found = [fuzz.run(options, seed) for seed in range(first, first + point["seeds"])]
    return {
        "linearizability_violations": (sum(bool(run["violations"]) for run in found), "count"),
        "operations": (sum(run["checked"] for run in found), "count"),
    }


def counts(data: Data, series: str) -> tuple[int, int, int]:
    """Return violations, histories and operations of one series in all memories."""
    rows = data.frame[data.frame["series"] == series]
    violations = rows[rows["metric"] == "linearizability_violations"]
    operations = rows[rows["metric"] == "operations"]["value"].sum()
    return int(violations["value"].sum()), int(violations["seeds"].sum()), int(operations)


def linearizable(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether every history of LOCO's store is linearizable on the paper's steps."""
    violations, histories, operations = counts(data, "loco")
    return Decision(
        violations == 0, violations, f"in {histories} histories of {operations} operations"
    )


def unfenced_is_wrong(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether Sherman reads stale data in weak memory without the fence, never with it."""
    without, histories, _ = counts(data, "sherman, no fence")
    fenced = counts(data, "sherman")[0]
    strong = data.value(
        "linearizability_violations", "count", series="sherman, no fence", memory="strong"
    )
    return Decision(
        without > 0 and fenced == 0 and strong == 0,
        f"without the fence {without} of {histories} histories, {strong:.0f} of them in strong "
        f"memory; with it {fenced}",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the share of histories that are not linearizable, by system."""
    fig, ax = figures.new()
    rows = data.select("linearizability_violations")
    values = {}
    for memory in MEMORY:
        of_memory = rows[rows["memory"] == memory]
        shares = [
            100
            * of_memory[of_memory["series"] == s]["value"].sum()
            / of_memory[of_memory["series"] == s]["seeds"].sum()
            for s in SERIES
        ]
        values[f"{memory.replace(',', ' memory,')}{'' if ',' in memory else ' memory'}"] = shares
    figures.bars(ax, [name for name, *_ in SERIES.values()], values)
    _axes.write_values(ax, "{:.2g}")
    ax.set(ylabel="Histories not linearizable (%)", ylim=(0, 1.3 * max(map(max, values.values()))))
    if claims["loco/kv_linearizable"].number is not None:
        _axes.hollow(ax, list(SERIES).index("loco"), 0, "paper: LOCO")
    ax.legend()
    return fig


experiment = Experiment(
    id="loco/appC_linearizability",
    title="Histories of key-value stores that are not linearizable",
    profile="c6525-25g",
    axes={
        "series": Axis(list(SERIES)),
        "memory": Axis(list(MEMORY)),
        "seeds": Axis([60], full=[2000]),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "memory there is strong; LocoWorlds.TheStoreIsLinearizable checks it",
        "verbs": "the memory of a device cannot be chosen",
    },
    max_repetitions=1,
    decides={
        "loco/kv_linearizable": linearizable,
        "loco/kv_unfenced_sherman_bug": unfenced_is_wrong,
    },
)
