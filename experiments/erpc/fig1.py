"""RDMA read rate against the number of connections of a ConnectX-5 (section 4.1.2).

Every node reads 16 B from all others, each time on a random one of its connections. The rate falls
once the connections' state exceeds the NIC's memory. Priority flow control is on, as in the paper.

eRPC's sessions are in the CPU's memory. Its series has sessions of 32 credits instead, both ends
counted, up to 19,600 on a node, with figure 4's requests of 10 threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import needs
from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 8
THREADS = 8  # per node: more than enough to keep the link busy
READ_BYTES = 16
RDMA, ERPC = "RDMA_read", "eRPC"
ERPC_THREADS = 10
ENDS = 2 * ERPC_THREADS**2 * (NODES - 1)  # of a node, with one session between two threads
SESSIONS = (ENDS, 4 * ENDS, 14 * ENDS)  # the last is the paper's 20,000, as far as ENDS allows
MOST_SESSIONS = SESSIONS[-1]
KEPT = 0.9  # of the rate with the fewest sessions
LINK = {"link.lossless": 1}


def rpc_rate(point: Point) -> dict[str, tuple[float, str]]:
    """Measure eRPC with `connections` ends of sessions on each node."""
    result = _load.run(
        point,
        NODES,
        point.duration(100e-6, 500e-6),
        {"overrides": LINK},
        **_load.BATCHES,
        threads=ERPC_THREADS,
        sessions=point["connections"] // ENDS,
        packet_bytes=320,
    )
    return {"rate_per_node": (result.value("rate") / NODES, "op/s")}


def is_drawn(params: Mapping[str, Any]) -> bool:
    """Give each series its own numbers of connections or sessions."""
    return bool((params["connections"] in SESSIONS) == (params["series"] == ERPC))


def measure(point: Point) -> Any:
    """Measure all nodes; a connection carries both nodes' reads, so each NIC has `connections`."""
    if point["series"] == ERPC:
        return rpc_rate(point)
    load = workload.VerbsLoad(
        op="read",
        size=READ_BYTES,
        threads=THREADS,
        qps=point["connections"] // THREADS,
        servers=0,
        pattern="random",
        depth=32,
        batch=1,
        warmup_ns=500_000,  # until the NIC's cache is in its steady state
    )
    with point.cluster(nodes=NODES, overrides=LINK) as cluster:
        result = cluster.run(load, duration_s=point.duration(100e-6, 500e-6))
    return {"rate_per_node": (result.value("rate") / NODES, "op/s")}


def falls(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the rate falls with every step once it has left its peak."""
    rate = data.series("rate_per_node", "connections", "Mop/s", series=RDMA)
    peak = float(rate.max())
    beyond = [float(v) for v in rate[rate < 0.95 * peak]]
    holds = len(beyond) > 1 and all(b < a * 1.02 for a, b in itertools.pairwise(beyond))
    return Decision(
        holds, f"peak {peak:.1f}, then " + ", ".join(f"{v:.1f}" for v in beyond) + " Mop/s"
    )


def loss(data: Data, claim: Claim) -> Decision:
    """Compare the loss at 5,000 connections with the peak at few connections."""
    rate = data.series("rate_per_node", "connections", "Mop/s", series=RDMA)
    if 5000 not in rate.index:
        raise decide.NotEvaluated("5000 connections were not measured")
    lost = 100 * (1 - float(rate[5000]) / float(rate.max()))
    return Decision(None, lost, f"{rate.max():.1f} to {rate[5000]:.1f} Mop/s ({claim.unit})")


def keeps_its_rate(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether eRPC keeps its rate at 20,000 sessions where reads lose half at 5,000."""
    rpcs = data.series("rate_per_node", "connections", "Mop/s", series=ERPC)
    reads = data.series("rate_per_node", "connections", "Mop/s", series=RDMA)
    if MOST_SESSIONS not in rpcs.index or 5000 not in reads.index:
        raise decide.NotEvaluated(f"{MOST_SESSIONS} sessions or 5000 connections were not measured")
    kept = float(rpcs[MOST_SESSIONS]) / float(rpcs.iloc[0])
    left = float(reads[5000]) / float(reads.max())
    return Decision(kept >= KEPT > left, f"eRPC keeps {kept:.0%}, reads {left:.0%}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the rate per node; the paper gives only the loss at 5,000 connections."""
    fig, ax = figures.new()
    names = {RDMA: "16 B reads", ERPC: "eRPC, 32 B"}
    for number, (series, name) in enumerate(names.items()):
        figures.line(
            ax,
            data,
            "rate_per_node",
            "connections",
            unit="Mop/s",
            label=name,
            first=number,
            series=series,
        )
    peak = float(data.series("rate_per_node", "connections", "Mop/s", series=RDMA).max())
    share = claims["erpc/fig1_loss_at_5000"].number
    if share is not None:
        left = peak * (1 - share / 100)
        _axes.hollow(ax, 5000, left, f"paper: {share:.0f} % below the peak")
    ax.set(xlabel="Connections per NIC, or sessions of a node", ylabel="Rate per node (M/s)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/fig1",
    title="RDMA read rate of ConnectX-5 against number of connections, and eRPC's against sessions",
    profile="cx5",
    axes={
        "series": Axis([RDMA, ERPC]),
        "connections": Axis(
            [64, 1000, 2000, 3000, 4000, 5000, *SESSIONS],
            full=[
                *(64, 504, 1000, 1504, 2000, 2504, 3000, 3504, 4000, 4504, 5000, 6000, 8000),
                *SESSIONS,
            ],
        ),
    },
    where=is_drawn,
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "shared memory has no NIC that caches connections"},
    decides={
        "erpc/fig1_loss_at_5000": loss,
        "erpc/fig1_decreasing": decide.by_construction(
            falls, "the NIC's cache and its misses are calibrated by the loss on this curve"
        ),
        "erpc/nic_state_per_connection": decide.profile("nic.qp_state_bytes"),
        "erpc/nic_state_5000": decide.profile("nic.qp_state_bytes", scale=5000),
        # The other half holds the NIC's other structures and buffers.
        "erpc/nic_sram": decide.profile("nic.cache_bytes", scale=2),
        "erpc/fig1_erpc_flat": keeps_its_rate,
        "erpc/connectx5_not_better": needs("a Connect-IB, which no testbed has"),
        "erpc/qp_sharing_loss": needs("threads that share a queue pair, which no workload has yet"),
        "erpc/multihost_sharing": needs("a NIC shared by several hosts, which the simulator lacks"),
    },
)
