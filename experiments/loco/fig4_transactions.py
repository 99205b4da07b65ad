"""Transfers between two accounts under the locks of both (section 7.1, figure 4).

The MPI series is a model of Open MPI's windows on the same fabric. The accounts are spread over
windows; each part has its own registration and one lock. ``merged`` is the same model with all
parts in a few large regions, which shows the cost of the registrations. The model has no queue pair
for each two ranks, as MPI has.

``loco`` takes the steps of the paper, on which the claims are judged. ``loco_best`` turns on every
switch that makes the protocol better (``native/systems/loco/README.md``).

In the simulator MPI is ahead where the paper has LOCO ahead. A transfer of the paper's protocol
takes eight round trips in sequence: two for each lock (the ticket, then now_serving), one for both
reads, one for both writes, for which the fence waits, and one for each release. The model of MPI
takes four: one for each lock, one for the gets, one for the puts; it does not wait for its unlocks.
The best preset takes three, and waits for no write and no release.

The paper explains LOCO's advantage by the registrations of MPI's windows. The registrations of 341
windows (5456 on a node with 16 ranks, 72 B of NIC memory each) fit into the simulated NIC's cache,
and so do twice as many. Four times as many cost 11 % of the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.loco import _locks
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = {
    "loco": "LOCO, paper",
    "loco_best": "LOCO, best",
    "openmpi": "MPI windows (model)",
    "merged": "MPI windows, merged regions",
}
PAPER = 341  # windows, and locks per thread (7.1)
NODES, THREADS = 8, 16  # nodes and threads of the sweep over windows


def where(params: Mapping[str, Any]) -> bool:
    """Sweep the windows only at the largest cluster; merge regions only there."""
    largest = bool(params["nodes"] == NODES and params["threads"] == THREADS)
    if params["windows"] != PAPER:
        return largest and not params["series"].startswith("loco")
    return largest or bool(params["series"] != "merged")


def measure(point: Point) -> Any:
    """Measure the transfers of all threads; with one thread per node, also one lock (reversal)."""
    series, simulated = point["series"], point.fabric == "sim"
    if series.startswith("loco"):
        protocol: Any = {"preset": "best" if series == "loco_best" else "paper"}
        windows: Any = {}
    else:
        protocol = {"system": "mpi_windows"}
        windows = {"merged": series == "merged"}
    load = workload.LocoTransactions(
        **protocol,
        **windows,
        threads=point["threads"],
        locks_per_thread=point["windows"],
        accounts=1_000_000 if point.quick else 100_000_000,
        polling=_locks.polling(point),
        warmup_ns=50_000,
    )
    seconds = 200e-6 if simulated else 0.1
    with point.cluster(nodes=point["nodes"]) as cluster:
        found = cluster.run(load, duration_s=point.duration(seconds, 2 * seconds))
        result = {
            "transaction_throughput": (found.value("rate"), "op/s"),
            "locks_per_thread": (found.value("locks_per_thread"), "locks"),
        }
        if point["threads"] == 1:
            one = workload.LocoLock(**protocol, polling=_locks.polling(point), warmup_ns=50_000)
            rate = cluster.run(one, duration_s=point.duration(seconds, 2 * seconds)).value("rate")
            result["lock_throughput"] = (rate, "op/s")
    return result


def both(data: Data, metric: str, **at: Any) -> tuple[float, float]:
    """Return LOCO's and MPI's rate at one point, in M op/s."""
    found = [data.value(metric, "Mop/s", series=s, **at) for s in ("loco", "openmpi")]
    return found[0], found[1]


def loco_ahead(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide at every number of nodes and of threads."""
    ratios = []
    for nodes in data.values_of("nodes"):
        for threads in data.values_of("threads"):
            loco, mpi = both(
                data, "transaction_throughput", nodes=nodes, threads=threads, windows=PAPER
            )
            ratios.append(loco / mpi)
    text = f"LOCO {min(ratios):.2f} to {max(ratios):.2f} times MPI at {len(ratios)} points"
    return Decision(
        min(ratios) > 1,
        text,
        "the paper's protocol takes eight round trips, the model of MPI four; the registrations "
        "of 341 windows cost nothing in the simulated NIC",
    )


def reversal(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide with one thread per node, where both benchmarks ran."""
    held, texts = True, []
    for nodes in data.values_of("nodes"):
        at: dict[str, Any] = {"nodes": nodes, "threads": 1, "windows": PAPER}
        lock, lock_mpi = both(data, "lock_throughput", **at)
        transfer, transfer_mpi = both(data, "transaction_throughput", **at)
        held = held and lock < lock_mpi and transfer > transfer_mpi
        texts.append(f"{nodes} nodes {lock / lock_mpi:.2f} then {transfer / transfer_mpi:.2f}")
    return Decision(held, "LOCO to MPI, lock then transactions: " + "; ".join(texts))


def no_limit_of_windows(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the most windows with which the model of MPI was run."""
    rows = data.select("transaction_throughput", series="openmpi")
    return Decision(
        None,
        float(rows["windows"].max()),
        "the model has no limit, and neither has Open MPI 4.1.4 between two processes of one "
        "machine below 19,000: it is one of Open MPI 5.0.5 over the testbed's NIC",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw throughput against nodes, threads and windows."""
    fig, panels = figures.new(1, 3)
    most = {"nodes": max(data.values_of("nodes")), "threads": max(data.values_of("threads"))}
    labels = {"nodes": "Nodes", "threads": "Threads or ranks of a node", "windows": "Windows"}
    for ax, over in zip(panels, labels, strict=True):
        fixed: dict[str, Any] = {key: value for key, value in most.items() if key != over}
        if over != "windows":
            fixed["windows"] = PAPER
        for number, series in enumerate(SERIES):
            rows = data.select("transaction_throughput", series=series, **fixed)
            if rows[over].nunique() > 1:
                figures.line(
                    ax,
                    data,
                    "transaction_throughput",
                    over,
                    unit="Mop/s",
                    label=SERIES[series],
                    first=number,
                    series=series,
                    **fixed,
                )
        _axes.layer(ax)
        _axes.from_zero(ax)
        values = data.values_of(over)
        ax.set_xticks(values, [str(v) for v in values])
        rest = ", ".join(f"{v} {k}" for k, v in fixed.items())
        ax.set(xlabel=f"{labels[over]} ({rest})", ylabel="Transactions (M/s)")
    panels[2].set_ylim(0, panels[0].get_ylim()[1])
    limit = claims["loco/fig4_mpi_max_windows"].number
    if limit is not None:
        style: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": ":"}
        panels[2].axvline(limit, label="paper: most windows of MPI", **style)
    for ax in panels[:2]:
        figures.paper_says(ax, "LOCO above MPI")
    figures.legend_below(list(panels), _locks.MPI_NOTE)
    return fig


experiment = Experiment(
    id="loco/fig4_transactions",
    title="Throughput of two-lock account transfers",
    profile="c6525-25g",
    axes={
        "series": Axis(list(SERIES)),
        "nodes": Axis([2, 4, NODES], full=[2, 3, 4, 5, 6, 7, NODES]),
        "threads": Axis([1, 4, THREADS], full=[1, 2, 4, 8, THREADS]),
        "windows": Axis([PAPER, 4 * PAPER], full=[PAPER, 2 * PAPER, 4 * PAPER, 8 * PAPER]),
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "one machine has too few cores; pyrdma bench loco/ measures two nodes"},
    decides={
        "loco/fig4_transactions_rank": loco_ahead,
        "loco/fig4_reversal": reversal,
        # Merging the regions of all windows takes the supposed cause away.
        "loco/fig4_reason_windows": decide.cause(
            "transaction_throughput",
            ahead=({"series": "loco"}, {"series": "openmpi"}),
            without=({"series": "loco"}, {"series": "merged"}),
            reason="the regions of 341 windows fit into the simulated NIC's cache",
            nodes=NODES,
            threads=THREADS,
            windows=PAPER,
        ),
        "loco/fig4_mpi_max_windows": no_limit_of_windows,
        "loco/fig4_loco_max_locks": decide.by_construction(
            decide.value(
                "locks_per_thread", series="loco", nodes=NODES, threads=THREADS, windows=PAPER
            ),
            "the workload gives each thread this many locks",
        ),
    },
)
