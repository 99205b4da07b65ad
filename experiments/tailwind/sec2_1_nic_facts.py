"""Facts that the paper takes from others (sections 1, 2.1.2, 3.1, 3.2): no own measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.tailwind import _store
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CASES = {
    "fetch_add": "Fetch-and-adds on one word",
    "send": "Sends of 8 B",
    "get": "Reads of the store, 1 client",
    "gets": "Reads of the store, 24 clients",
}
THREADS = 8


def measure(point: Point) -> Any:
    """Measure remote atomics on one word beside sends, and reads of the store."""
    case = point["case"]
    if case in ("get", "gets"):
        clients = 1 if case == "get" else 24
        result = _store.run(point, clients, 0.0, "tailwind", servers=1, replicas=0, seconds=0.002)
        return {
            "latency": (result.latency("get").percentile(50), "ns"),
            "rate": (result.value("rate"), "op/s"),
        }
    load = workload.VerbsLoad(op=case, size=8, depth=32, batch=8, threads=THREADS)
    with point.cluster(nodes=2) as cluster:
        result = cluster.run(load, duration_s=point.duration(0.0005, 0.005))
    return {"rate": (result.value("rate"), "op/s")}


def atomics_slower(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a NIC carries out fewer atomics than it sends messages."""
    atomics, sends = (data.value("rate", "op/s", case=c) / 1e6 for c in ("fetch_add", "send"))
    return Decision(atomics < sends, f"{atomics:.1f} against {sends:.1f} M/s")


def few_microseconds(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a read of the store takes less than ten microseconds."""
    latency = data.value("latency", "us", case="get")
    return Decision(latency < 10, f"{latency:.1f} us")


def millions(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether one server answers a million reads or more per second."""
    rate = data.value("rate", "op/s", case="gets") / 1e6
    return Decision(rate >= 1, f"{rate:.2f} M/s of one server")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no numbers of it
    """Draw the rates."""
    fig, ax = figures.new()
    rates = [data.value("rate", "op/s", case=case) / 1e6 for case in CASES]
    bars = ax.barh(list(CASES.values()), rates, color="0.6", edgecolor="black")
    ax.bar_label(bars, [f"{rate:.2g}" for rate in rates], padding=3)
    ax.margins(x=0.12)
    ax.invert_yaxis()
    ax.set(xlabel="Rate of one node (million/s)")
    return fig


experiment = Experiment(
    id="tailwind/sec2_1_nic_facts",
    title="Facts about NICs and stores",
    profile="r320",
    axes={"case": Axis(list(CASES))},
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/cal_atomics_slower_than_rpc": atomics_slower,
        "tailwind/cal_remote_access_time": few_microseconds,
        "tailwind/cal_store_rate_general": millions,
    },
    misses={
        "tailwind/cal_store_rate_general": (
            "the paper speaks of stores in general. RAMCloud's own publication has 0.95 M/s at "
            "2.93 GHz, which its costs here are calibrated on; this testbed has 2.1 GHz"
        )
    },
)
