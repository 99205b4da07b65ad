"""One contended lock; each section reads, increments and writes a word (section 7.1, figure 4).

The MPI series is a model of Open MPI's window locks on the same fabric, not Open MPI. Over shared
memory ``pyrdma bench loco/`` measures Open MPI itself.

``loco`` takes the steps of the paper, on which the claim is judged. ``loco_best`` turns on every
switch that makes the protocol better (``native/systems/loco/README.md``).

A section takes five round trips in the paper's protocol: the ticket, now_serving, the word, the
write for which the fence waits, and the release. The model of MPI takes three: the
compare-and-swap, the get, and the put for which the unlock waits. But its lock is not fair: a rank
that unlocks may lock again at once, and one rank keeps the lock most of the time (right panel). If
this rank is on the lock's own node, its requests do not cross the wire and it does more than
200,000 sections a second. A remote rank does 110,000, delayed by the tries of all other ranks.
LOCO's lock is fair, so its own node always gets its share. So LOCO is ahead on 2 and 3 nodes, where
a remote rank keeps MPI's lock. The paper explains MPI's advantage by "extensive optimization and a
more managed environment", which a model of MPI's messages cannot have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.loco import _locks
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = {
    "openmpi": "MPI windows (model)",
    "loco": "LOCO, paper",
    "loco_best": "LOCO, best",
    "loco, thread fence": "LOCO, paper, thread fence",
    "test-and-set": "test-and-set",
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "openmpi": {"system": "mpi_windows"},
    "loco": {"preset": "paper"},
    "loco_best": {"preset": "best"},
    "loco, thread fence": {"preset": "paper", "fence": "thread"},
    "test-and-set": {"system": "test_and_set"},
}


def measure(point: Point) -> Any:
    """Measure the critical sections of all nodes, and the share of the lock's own node."""
    load = workload.LocoLock(
        **SYSTEMS[point["series"]], polling=_locks.polling(point), warmup_ns=50_000
    )
    with point.cluster(nodes=point["nodes"]) as cluster:
        seconds = 500e-6 if point.fabric == "sim" else 0.1
        found = cluster.run(load, duration_s=point.duration(seconds, 5 * seconds))
    ops = found.frame[found.frame["metric"] == "ops"]
    at_lock = float(ops[ops["node"] == 0]["value"].sum()) / float(ops["value"].sum())
    return {"lock_throughput": (found.value("rate"), "op/s"), "share_of_host": (at_lock, "x")}


def mpi_ahead(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide at every number of nodes."""
    mpi = data.series("lock_throughput", "nodes", "Kop/s", series="openmpi")
    loco = data.series("lock_throughput", "nodes", "Kop/s", series="loco")
    text = "; ".join(f"{n} nodes {mpi[n]:.0f} to {loco[n]:.0f}" for n in mpi.index)
    return Decision(
        bool((mpi > loco).all()),
        f"{text} Kop/s",
        "on few nodes one remote rank keeps the model's lock, delayed by the others' tries; LOCO's "
        "lock is fair",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - ranks alone
    """Draw throughput against nodes, and the share of the lock's own node."""
    fig, (left, right) = figures.new(1, 2)
    shown = [s for s in SERIES if s in data.values_of("series")]
    for number, series in enumerate(shown):
        for ax, metric, unit in (
            (left, "lock_throughput", "Mop/s"),
            (right, "share_of_host", "x"),
        ):
            figures.line(
                ax,
                data,
                metric,
                "nodes",
                unit=unit,
                label=SERIES[series],
                first=number,
                series=series,
            )
    _axes.from_zero(left)
    right.set_ylim(-0.03, 1.03)
    for ax in (left, right):
        _axes.layer(ax)
        ax.set_xticks(data.values_of("nodes"))
        ax.set_xlabel("Nodes, one thread each")
    left.set_ylabel("Critical sections (M/s)")
    right.set_ylabel("Share of the lock's own node")
    figures.paper_says(left, "MPI above LOCO")
    figures.legend_below([left], _locks.MPI_NOTE)
    return fig


experiment = Experiment(
    id="loco/fig4_single_lock",
    title="Throughput of one contended lock",
    profile="c6525-25g",
    axes={"series": Axis(list(SERIES)), "nodes": Axis([2, 4, 8], full=[2, 3, 4, 5, 6, 7, 8])},
    measure=measure,
    figure=figure,
    decides={"loco/fig4_single_lock_rank": mpi_ahead},
)
