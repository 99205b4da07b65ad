"""One contended lock, a word read, counted up and written under it (section 7.1, figure 4).

The series of Open MPI is a model of its window locks on the same fabric, not Open MPI; over
shared memory ``pyrdma bench loco/`` runs beside the real one.

``loco`` takes the steps of the paper, on which the claim is judged; ``loco_best`` has every switch
on that makes the protocol better (``native/systems/loco/README.md``).

A section takes five round trips in the paper's protocol: the ticket, now_serving, the word, the
write that the fence waits for, and the release. The model of MPI takes three: the compare-and-swap,
the get, and the put that the unlock waits for. But its lock is not fair: a rank that unlocks may
lock again at once, and one rank keeps the lock most of the time (right panel). On the lock's own
node, whose requests do not cross the wire, such a rank does more than 200,000 sections a second; a
remote one does 110,000, delayed by the tries of all others. LOCO's lock is fair, so that its own
node always has its part. So LOCO is ahead on 2 and 3 nodes, where a remote rank keeps MPI's lock.
The paper puts MPI's advantage down to "extensive optimization and a more managed environment",
which a model of its messages cannot have.
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
    """Measure critical sections of all nodes, and which part of them the lock's node had."""
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
        "is fair",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - ranks alone
    """Draw throughput against nodes, and the share of the node that has the lock."""
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
    left.set_ylim(0, 1.5 * left.get_ylim()[1])
    right.set_ylim(-0.03, 1.03)
    for ax in (left, right):
        _axes.layer(ax)
        ax.set_xticks(data.values_of("nodes"))
        ax.set_xlabel("Nodes, one thread each")
    left.set_ylabel("Critical sections (M/s)")
    right.set_ylabel("Part done by the lock's own node")
    left.legend(loc="upper right", title=_locks.MPI_NOTE, title_fontsize=7)
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
