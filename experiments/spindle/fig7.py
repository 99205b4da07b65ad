"""How often a batch has each size: sends, receives and deliveries of 16 senders (figure 7).

The histograms are those of node 0. The mean batches, which section 4.1.3 gives, are of all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decider, Decision
from pyrdma.result import Row, Value

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NODES = 16  # all of them send
PAPER = "batching"
MOSTLY = 0.5  # of all batches


def measure(point: Point) -> Any:
    """Count the batches of each size."""
    sent = _multicast.messages(point, NODES, 1500)
    result = _multicast.run(point, NODES, preset=point["series"], messages=sent, batch_sizes=True)
    rows = [Row(name, *number) for name, number in _multicast.measured(result).items()]
    for sample in result.samples:
        stage, _, size = sample.metric.partition("_batch_")
        if stage in _multicast.BATCHES and size:
            labels: dict[str, Value] = {"stage": stage, "batch": int(size)}
            rows.append(Row("batches", sample.value, "count", labels))
    return rows


def histogram(data: Data, stage: str, series: str = PAPER) -> pd.Series:
    """Return the number of batches by their size."""
    return data.series("batches", "batch", series=series, stage=stage)


def median(found: pd.Series) -> float:
    """Return the median size of the batches."""
    return float(found.index[(found.cumsum() >= found.sum() / 2).argmax()])


def typical(stage: str, per: int = 1) -> Decider:
    """Compare the median batch, divided by `per`, with the claim."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        found = median(histogram(data, stage))
        return Decision(None, found / per, f"the median batch has {found:g} messages")

    return decider


def multiples(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether most delivery batches are multiples of the number of senders."""
    found = histogram(data, "delivery")
    share = float(found[found.index % NODES == 0].sum() / found.sum())
    return Decision(share > MOSTLY, f"{share:.0%} of {found.sum():.0f} batches")


def order(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the mean batches grow from sends to receives to deliveries."""
    means = [data.value(f"{stage}_batch", series=PAPER) for stage in _multicast.BATCHES]
    text = ", ".join(f"{s} {m:.2f}" for s, m in zip(_multicast.BATCHES, means, strict=True))
    return Decision(means[0] < means[1] < means[2], text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the share of batches up to each size, with the paper's means."""
    fig, panels = figures.new(1, 3)
    for ax, stage in zip(panels, _multicast.BATCHES, strict=True):
        for number, series in enumerate((PAPER, "best")):
            if series not in data.values_of("series"):
                continue
            found = histogram(data, stage, series)
            share = 100 * found.cumsum() / found.sum()
            style = {**figures.style_of(number), "marker": ""}
            ax.step(
                [share.index[0], *share.index],
                [0, *share],
                where="post",
                label=_multicast.NAMES[series],
                **style,
            )
            mean = data.value(f"{stage}_batch", series=series)
            ax.axvline(
                mean,
                ymax=0.12,
                label=f"mean, {_multicast.NAMES[series]}",
                **{**style, "linewidth": 3},
            )
        paper = claims[f"spindle/batch_{stage}_1sg"].number
        if paper is not None:
            ax.axvline(paper, color="black", linewidth=0.9, label="paper: mean")
        most = max(float(line.get_xdata()[-1]) for line in ax.lines)
        ax.set(xlabel=f"Messages of a {stage} batch", ylabel="Batches up to this size (%)")
        ax.set(xlim=(0.9, 1.1 * most), ylim=(0, 102))
        ax.set_xscale("log")  # most batches are small
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="spindle/fig7",
    title="Sizes of send, receive and delivery batches",
    profile="spindle",
    axes={"series": Axis([PAPER, "best"])},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig7_send_batches": typical("send"),
        "spindle/fig7_delivery_multiples": multiples,
        "spindle/fig7_delivery_per_sender": typical("delivery", per=NODES),
        "spindle/fig7_stage_order": order,
        **{
            f"spindle/batch_{stage}_1sg": decide.value(f"{stage}_batch", series=PAPER)
            for stage in _multicast.BATCHES
        },
    },
    misses={
        "spindle/fig7_send_batches": _misses.BURSTS,
        "spindle/fig7_delivery_multiples": "a delivery ends where the slowest member's receipts "
        "end, and each receipt is one sender's batch: the 53 deliveries of node 0 have all "
        "remainders by 16, and one of them is a multiple",
        "spindle/batch_send_1sg": _misses.BURSTS,
        "spindle/batch_receive_1sg": _misses.RECEIVE,
        "spindle/batch_delivery_1sg": _misses.BURSTS,
    },
)
