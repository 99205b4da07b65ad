"""Declared senders that send nothing, and one that is slow (section 4.2.3).

All members are declared senders, and the first alone sends. The reference is the subgroup whose
sender is the first alone. The slow sender of the paper was starved by a lock; here it computes for
100 us after each message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "active": ("one declared, active", {"senders": "one"}),
    "silent": ("all declared, one active", {"delayed": "rest", "delay_ns": -1}),
    "all": ("all send", {}),
    "slow": ("one of them slow", {"delayed": "one", "delay_ns": 100_000}),
}
PAPER = {"series": "batching+nulls"}


def measure(point: Point) -> Any:
    """Measure one case, with the messages per second of the first and of the last sender."""
    load = {"preset": point["series"], **CASES[point["case"]][1]}
    result = _multicast.run(point, point["nodes"], **load)
    found = _multicast.measured(result)
    sent = _multicast.by_node(result, "sent")
    total = sum(sent)
    rate = found["message_rate"][0]
    if point["case"] in ("all", "slow"):
        found["first_sender_rate"] = (rate * sent[0] / total, "op/s")
        found["last_sender_rate"] = (rate * sent[-1] / total, "op/s")
    return found


def full_speed(data: Data, claim: Claim) -> Decision:
    """Decide whether declared senders that are silent cost no more than the tolerance."""
    silent, alone = {"case": "silent"}, {"case": "active"}
    found = _multicast.ratios(data, "throughput", silent, alone, **PAPER)
    text = f"{_multicast.listed(found)} nodes, times the throughput of one declared sender"
    return Decision(bool(found.min() >= 1 - claim.tolerance), text)


def contained(data: Data, claim: Claim) -> Decision:
    """Decide whether the others are as fast as without the slow sender, which stays slow."""
    slow, usual = {"case": "slow"}, {"case": "all"}
    others = _multicast.ratios(data, "first_sender_rate", slow, usual, **PAPER)
    itself = _multicast.ratios(data, "last_sender_rate", slow, usual, **PAPER)
    holds = others.min() >= 1 - claim.tolerance and itself.max() < 1 - claim.tolerance
    text = f"the others {_multicast.listed(others)}; the slow one {_multicast.listed(itself)}"
    return Decision(bool(holds), f"times the rate without a slow sender: {text}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - trends alone
    """Draw the throughput of each case, with the paper's switches and with ours."""
    fig, panels = figures.new(1, 2, sharey=True)
    names = {case: name for case, (name, _) in CASES.items()}
    for ax, series in zip(panels, ("batching+nulls", "best"), strict=True):
        _multicast.draw(ax, data, names, by="case", series=series)
        ax.set_title(_multicast.NAMES[series])
    for ax in panels:
        _multicast.finish(ax, data)
    panels[1].set_ylabel("")
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="spindle/sec4_2_3",
    title="Further null-send stress cases",
    profile="spindle",
    axes={
        "series": Axis(["batching+nulls", "best"]),
        "case": Axis(list(CASES)),
        "nodes": _multicast.FEW_NODES,
    },
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/nulls_one_active_of_declared_senders": full_speed,
        "spindle/nulls_contain_slow_sender": contained,
    },
)
