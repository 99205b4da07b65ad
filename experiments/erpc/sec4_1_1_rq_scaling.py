"""How many long receive queues a NIC sustains (section 4.1.1).

One node has a receive queue in each thread, of 2,048 entries on Connect-IB and of 65,536 on
ConnectX-5, each entry for one packet. Other nodes send small requests to all of them. While the NIC
keeps the posted receives, no packet waits for one; beyond, packets wait for a fetch. The limits of
the model are calibrated by these claims, so they hold by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.erpc import _load
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENTRIES = {"cib": 2048, "cx5": 65536}
NAMES = {"cib": "Connect-IB, 2,048 entries", "cx5": "ConnectX-5, 65,536 entries"}
CLAIMS = {"cib": "connectib_rq_limit", "cx5": "connectx5_rq_limit"}
BATCH = 32  # entries that an endpoint has beyond receive_entries: those of a batch
CLIENTS = 2  # nodes
FEW = 0.02  # of the packets; the first packets of each queue wait in any case
CALIBRATED = "the receives that the NIC keeps are calibrated by it"


def measure(point: Point) -> Any:
    """Measure the share of packets to the server that waited for a receive."""
    queues = point["queues"]
    load = workload.ErpcLoad(
        preset="paper",
        pattern="incast",
        threads=queues,
        request=32,
        response=32,
        packet_bytes=320,
        receive_entries=ENTRIES[point.profile] - BATCH,
        multi_packet_receives="off",
        in_flight=4,
        warmup_ns=_load.WARMUP_NS,
    )
    span = point.duration(100e-6, 1e-3)
    cluster: Any
    with point.cluster(nodes=1 + CLIENTS, cores_per_node=queues) as cluster:
        result = cluster.run(load, duration_s=span)
        waits = cluster.counters(0)["receive_waits"]
    received = sum(
        s.value for s in result.samples if s.metric == "packets_received" and s.node == 0
    )
    return {"waiting_share": (waits / received, "fraction"), "rate": (result.value("rate"), "op/s")}


def most_queues(data: Data, profile: str) -> float:
    """Return the most measured queues up to which few packets wait."""
    shares = data.series("waiting_share", "queues", profile=profile)
    thrashing = [int(n) for n in shares.index if shares[n] > FEW]
    kept = [int(n) for n in shares.index if not thrashing or n < min(thrashing)]
    if not kept:
        raise decide.NotEvaluated("packets wait with the fewest queues")
    return float(max(kept))


def limit(profile: str) -> decide.Decider:
    """Compare the most queues without waits with the claim."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        return Decision(None, most_queues(data, profile), f"{ENTRIES[profile]} entries each")

    return decider


def growth(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the entries of the two NICs."""
    both = {name: most_queues(data, name) * entries for name, entries in ENTRIES.items()}
    return Decision(None, both["cx5"] / both["cib"], f"{both['cib']:.0f} to {both['cx5']:.0f}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the share of waiting packets, and the paper's limits."""
    fig, ax = figures.new()
    for number, (profile, name) in enumerate(NAMES.items()):
        figures.line(
            ax,
            data,
            "waiting_share",
            "queues",
            label=name,
            first=number,
            profile=profile,
        )
        most = claims[f"erpc/{CLAIMS[profile]}"].number
        if most is not None:
            style = figures.style_of(number)
            ax.axvline(
                most,
                color=style["color"],
                linestyle=style["linestyle"],
                linewidth=0.8,
                label=f"paper: {most:g} queues",
            )
    ax.set(xlabel="Receive queues of a NIC", ylabel="Share of packets that wait for a receive")
    ax.set_xticks(data.values_of("queues"))
    ax.legend()
    return fig


experiment = Experiment(
    id="erpc/sec4_1_1_rq_scaling",
    title="Long receive queues that a NIC sustains",
    profile="cx5",
    axes={
        "profile": Axis(list(ENTRIES)),
        "queues": Axis([7, 14, 21, 28], full=[2, 4, 7, 10, 14, 17, 21, 24, 28]),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no NIC that keeps receives",
        "verbs": "NICs do not count packets that wait for a receive",
    },
    decides={
        "erpc/connectib_rq_limit": decide.by_construction(limit("cib"), CALIBRATED),
        "erpc/connectx5_rq_limit": decide.by_construction(limit("cx5"), CALIBRATED),
        "erpc/rq_capacity_growth": decide.by_construction(growth, CALIBRATED),
    },
)
