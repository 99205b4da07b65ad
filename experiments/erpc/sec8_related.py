"""eRPC against RPCs over RDMA writes as connections grow (section 8).

The paper says "an order of magnitude" and measures nothing. FaRM's RPCs take two writes, one of the
request and one of the response, each over a connection of its own to each peer. The series of
writes is an upper bound of such RPCs: half the rate of 48 B writes over random connections, without
the time in which a CPU looks through the rings. So the ratio is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.erpc import fig1
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WRITES, ERPC = "RDMA writes, at most", "eRPC"
BYTES = 48  # 32 B and a header
LARGE_SCALE = fig1.MOST_SESSIONS  # connections of a node


def measure(point: Point) -> Any:
    """Measure RPCs of a node over about as many connections or sessions."""
    if point["series"] == ERPC:
        return fig1.rpc_rate(point)
    load = workload.VerbsLoad(
        op="write",
        size=BYTES,
        threads=fig1.THREADS,
        qps=point["connections"] // fig1.THREADS,
        servers=0,
        pattern="random",
        depth=32,
        batch=1,
        warmup_ns=500_000,  # until the NIC's cache is in its steady state
    )
    with point.cluster(nodes=fig1.NODES, overrides=fig1.LINK) as cluster:
        result = cluster.run(load, duration_s=point.duration(100e-6, 500e-6))
    return {"rate_per_node": (result.value("rate") / fig1.NODES / 2, "op/s")}


def ahead(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the rates with the most connections with the claim."""
    both = [
        data.value("rate_per_node", "Mop/s", series=s, connections=LARGE_SCALE)
        for s in (ERPC, WRITES)
    ]
    return Decision(None, both[0] / both[1], f"{both[0]:.1f} to at most {both[1]:.1f} M/s")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both rates, and the paper's factor at the most connections."""
    fig, ax = figures.new()
    for number, series in enumerate((ERPC, WRITES)):
        figures.line(
            ax,
            data,
            "rate_per_node",
            "connections",
            unit="Mop/s",
            label=series,
            first=number,
            series=series,
        )
    factor = claims["erpc/farm_rpc_at_scale"].number or 1.0
    most = data.value("rate_per_node", "Mop/s", series=ERPC, connections=LARGE_SCALE)
    _axes.hollow(ax, LARGE_SCALE, most / factor, f"paper: eRPC's rate / {factor:g}", "s")
    ax.set(xlabel="Connections or sessions of a node", ylabel="RPCs per node (M/s)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec8_related",
    title="eRPC against RPCs over RDMA writes as connections grow",
    profile="cx5",
    axes={
        "series": Axis([ERPC, WRITES]),
        "connections": Axis(list(fig1.SESSIONS)),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "shared memory has no NIC that caches connections"},
    decides={"erpc/farm_rpc_at_scale": ahead},
    misses={
        "erpc/farm_rpc_at_scale": "the bound of the writes has no time for the CPU that looks "
        "through the rings",
    },
)
