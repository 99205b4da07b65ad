"""The share of the hosts in the latency of a small RPC on CX5 (section 6.1).

The median less two crossings of the switch, in equal parts for client and server, with the time of
NIC and PCIe. Each crossing takes the switch's latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments._needs import Undecidable
from experiments.erpc import _load, _misses
from pyrdma import Experiment, Point, claims, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(point: Point) -> Any:
    """Measure one RPC at a time and subtract the switch."""
    latency = _load.one(point).latency("rpc").percentile(50)
    switch = Profile.load(point.profile, point.overrides).values()["switch.latency_ns"]
    return {"endhost_latency": ((latency - 2 * switch) / 2, "ns")}


def against_tofino(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare a host's share with the latency of a programmable switch that the paper cites."""
    host = data.value("endhost_latency", "ns")
    switch = claims.load()["erpc/programmable_switch_latency"].number or 0.0
    return Decision(None, host / switch, f"{host:.0f} to {switch:.0f} ns")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw a host's share beside the latencies of the two switches."""
    fig, ax = figures.new()
    host = data.value("endhost_latency", "ns")
    switches = [claims[f"erpc/{c}_latency"] for c in ("cx5_switch", "programmable_switch")]
    numbers = [(claims["erpc/cx5_endhost_latency"], 0), (switches[0], 1), (switches[1], 2)]
    figures.bars(ax, ["one host", "CX5's switch", "Tofino"], {"eRPC, CX5": [host, 0, 0]})
    ax.text(0, host / 2, f"{host:.0f}", ha="center", color="white")
    figures.overlay(ax, numbers, unit="ns", names={"eRPC": "eRPC", "SX1036": "SX1036"})
    ax.set(ylabel="Latency (ns)", ylim=(0, 1.5 * max(850, host)))
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec6_1_endhost",
    title="Share of the hosts in the latency of a small RPC",
    profile="cx5",
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no switch to subtract",
        "verbs": "the latency of the switch is not known",
    },
    decides={
        "erpc/cx5_endhost_latency": decide.value("endhost_latency"),
        "erpc/endhost_vs_programmable_switch": against_tofino,
        "erpc/programmable_switch_latency": Undecidable("a switch that no testbed has"),
    },
    misses={
        "erpc/cx5_endhost_latency": _misses.LATENCY,
        "erpc/endhost_vs_programmable_switch": _misses.LATENCY,
    },
)
