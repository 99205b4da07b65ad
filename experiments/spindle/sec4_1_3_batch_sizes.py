"""Mean batches against the number of subgroups, of which one is active (section 4.1.3).

All 16 nodes are in all subgroups and send in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 16
SUBGROUPS = [1, 2, 10, 50]
PAPER = "batching"


def measure(point: Point) -> Any:
    """Measure one number of subgroups."""
    sent = _multicast.messages(point, NODES, 500)
    load = {"preset": point["series"], "subgroups": point["subgroups"], "messages": sent}
    return _multicast.measured(_multicast.run(point, NODES, **load))


def grows(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether each mean batch grows with every step of the subgroups."""
    holds, texts = True, []
    for stage in _multicast.BATCHES:
        found = data.series(f"{stage}_batch", "subgroups", series=PAPER)
        holds = holds and all(b > a for a, b in pairwise(list(found)))
        texts.append(f"{stage} {', '.join(f'{mean:.4g}' for mean in found)}")
    return Decision(holds, "; ".join(texts))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the mean batch of each stage beside the paper's."""
    fig, panels = figures.new(1, 3)
    for ax, stage in zip(panels, _multicast.BATCHES, strict=True):
        _multicast.draw(ax, data, (PAPER, "best"), f"{stage}_batch", "messages", over="subgroups")
        for x in SUBGROUPS:
            number = claims[f"spindle/batch_{stage}_{x}sg"].number
            if number is not None:
                _axes.hollow(ax, x, number, "paper: batching")
        ax.set_xscale("log")
        ax.set_xticks(SUBGROUPS, [str(x) for x in SUBGROUPS])
        ax.minorticks_off()
        _axes.logarithmic(ax)
        ax.set(xlabel="Subgroups, one of them active", ylabel=f"Messages of a\n{stage} batch, mean")
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="spindle/sec4_1_3_batch_sizes",
    title="Mean batch sizes against number of subgroups",
    profile="spindle",
    axes={"series": Axis([PAPER, "best"]), "subgroups": Axis(SUBGROUPS)},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        **{
            f"spindle/batch_{stage}_{count}sg": decide.value(
                f"{stage}_batch", series=PAPER, subgroups=count
            )
            for stage in _multicast.BATCHES
            for count in SUBGROUPS[1:]
        },
        "spindle/batch_grows_with_subgroups": grows,
    },
    misses={
        "spindle/batch_send_2sg": _misses.BURSTS,
        "spindle/batch_receive_2sg": _misses.RECEIVE,
        "spindle/batch_delivery_2sg": _misses.BURSTS,
        "spindle/batch_send_10sg": _misses.BURSTS,
        "spindle/batch_receive_10sg": _misses.RECEIVE,
        "spindle/batch_delivery_10sg": _misses.BURSTS,
        "spindle/batch_send_50sg": _misses.BURSTS,
        "spindle/batch_receive_50sg": _misses.RECEIVE,
        "spindle/batch_delivery_50sg": _misses.BURSTS,
        "spindle/batch_grows_with_subgroups": "sends and receives grow. Deliveries come in "
        "bursts already with 1 subgroup, 542 messages, and a ring of 100 slots of 16 senders "
        "holds 1,600",
    },
)
