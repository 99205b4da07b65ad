"""Latency of puts to a store that Raft replicates on three nodes (table 6, section 7.1).

One client puts 64 B values under 16 B keys, one at a time. The leader's latency lasts from the
arrival of a command until a majority stores it and the leader has applied it. A put takes two small
RPCs one after the other and about a microsecond of the CPUs, so it has the error of table 2 twice.

The paper runs another Raft library. Here a member's reply to a message is a message of its own, and
not the response of the RPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable, needs
from experiments.erpc import _misses
from pyrdma import Experiment, Point, claims, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPLICAS = 3
PLACES = {"put": "client", "commit": "leader"}


def measure(point: Point) -> Any:
    """Measure one client of three members below one switch."""
    load = workload.ErpcRaft(
        preset="paper", replicas=REPLICAS, keys=1_000_000, value_bytes=64, warmup_ns=500_000
    )
    quick, full = (5e-3, 50e-3) if point.fabric == "sim" else (0.1, 1.0)
    with point.cluster(nodes=REPLICAS + 1) as cluster:
        result = cluster.run(load, duration_s=point.duration(quick, full))
    return {
        f"{name}_p{percent}": (result.latency(name).percentile(percent), "ns")
        for name in PLACES
        for percent in (50, 99)
    }


def _paper(claim: str) -> float:
    """Return a number in microseconds that the paper cites."""
    return claims.load()[f"erpc/{claim}"].number or 0.0


def below_netchain(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a put takes less than in NetChain, as the paper cites it."""
    own, cited = data.value("put_p50", "us"), _paper("t6_netchain_p50")
    return Decision(own < cited, f"{own:.2f} to {cited:.1f} us")


def above_fpga(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the leader's median with that of ZabFPGA, as the paper cites it."""
    own, cited = data.value("commit_p50", "us"), _paper("t6_zab_p50")
    return Decision(None, 100 * (own / cited - 1), f"{own:.2f} to {cited:.1f} us")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw median and 99th percentile at both places, beside the paper's numbers."""
    fig, ax = figures.new()
    bars = [(name, percent) for name in PLACES for percent in (50, 99)]
    heights = [data.value(f"{name}_p{percent}", "us") for name, percent in bars]
    names = [
        f"at the {PLACES[name]},\n{'median' if percent == 50 else '99 %'}" for name, percent in bars
    ]
    figures.bars(ax, names, {"Raft over eRPC": heights})
    _axes.write_inside(ax)
    numbers = [
        (claims[f"erpc/t6_{key}"], x)
        for key, x in (
            ("erpc_client_p50", 0),
            ("erpc_client_p99", 1),
            ("erpc_leader_p50", 2),
            ("erpc_leader_p99", 3),
            ("netchain_p50", 0),
            ("zab_p50", 2),
            ("zab_p99", 3),
        )
    ]
    figures.overlay(ax, numbers, unit="us", names={"eRPC": "Raft over eRPC"})
    ax.set(ylabel="Latency of a put (µs)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


CITED = "a measurement of another system, which the paper cites"

experiment = Experiment(
    id="erpc/table6",
    title="Latency of replicated puts",
    profile="cx5",
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "four nodes that poll need a core each"},
    decides={
        "erpc/t6_erpc_client_p50": decide.value("put_p50"),
        "erpc/t6_erpc_client_p99": decide.value("put_p99"),
        "erpc/t6_erpc_leader_p50": decide.value("commit_p50"),
        "erpc/t6_erpc_leader_p99": decide.value("commit_p99"),
        "erpc/t6_rank_client": below_netchain,
        "erpc/t6_leader_gap": above_fpga,
        "erpc/t6_dare_rank": needs("DARE, whose numbers the paper omits"),
        "erpc/t6_netchain_p50": Undecidable(CITED),
        "erpc/t6_netchain_scaling": Undecidable(CITED),
        "erpc/t6_zab_p50": Undecidable(CITED),
        "erpc/t6_zab_p99": Undecidable(CITED),
        "erpc/t6_zab_jitter": Undecidable(CITED),
    },
    misses={
        "erpc/t6_erpc_client_p50": _misses.RAFT,
        "erpc/t6_erpc_client_p99": _misses.RAFT,
        "erpc/t6_erpc_leader_p50": _misses.RAFT,
        "erpc/t6_erpc_leader_p99": _misses.RAFT,
        "erpc/t6_leader_gap": _misses.RAFT,
        "erpc/t6_rank_client": _misses.RAFT,
    },
)
