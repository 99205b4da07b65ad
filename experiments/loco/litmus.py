"""Litmus shapes through LOCO's objects and over raw weak memory (sections 5.3 and 2.2).

Property L8: LOCO's fences never show a late write that raw operations show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.fabric import litmus
from pyrdma import Axis, Experiment, Point, Row, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data, NotEvaluated

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(point: Point) -> list[Row]:
    """Run the shapes over raw operations or through LOCO, in the simulator's weak memory."""
    raw = point["series"] == "raw"
    load: workload.Workload = (
        workload.Litmus(rounds=20 * point["rounds"])
        if raw
        else workload.LocoLitmus(rounds=point["rounds"])
    )
    options = {"memory": "weak"} if point.fabric == "sim" else {}
    with point.cluster(nodes=litmus.NODES, **options) as cluster:
        return litmus.rows_of(cluster.run(load, timeout_s=3600), "weak")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no claims here
    """Draw the share of rounds with a weak or forbidden outcome, by shape, for both series.

    Shapes without such an outcome are counted in the title, not drawn.
    """
    seen = data.select("seen")
    every = list(dict.fromkeys(seen[seen["series"] == "LOCO"]["shape"]))
    beyond = seen[seen["level"].isin(BEYOND) & (seen["value"] > 0)]
    shapes = [shape for shape in every if shape in set(beyond["shape"])]
    if not shapes:
        raise NotEvaluated(f"none of {len(every)} shapes has a weak outcome")
    half = -(-len(shapes) // 2)
    fig, panels = figures.new(1, 2, height=0.125 * half + 1.1, sharex=True)
    fig.suptitle(f"{len(shapes)} of {len(every)} shapes; the others had no weak outcome", size=8)
    for ax, part in zip(panels, (shapes[:half], shapes[half:]), strict=True):
        for number, series in enumerate(("raw", "LOCO")):
            rows = seen[(seen["series"] == series) & seen["shape"].isin(part)]
            shares = [
                rows[(rows["shape"] == shape) & rows["level"].isin(BEYOND)]["value"].sum()
                / max(1.0, rows[rows["shape"] == shape]["value"].sum())
                for shape in part
            ]
            style = {**figures.style_of(number), "linestyle": "none"}
            if number == 0:  # visible around the other marker where both are at zero
                style |= {"markerfacecolor": "none", "markersize": 7}
            ax.plot(shares, range(len(part)), label=series, **style)
        ax.set_yticks(range(len(part)), part, fontsize=6)
        ax.set_ylim(len(part) - 0.4, -0.6)
        ax.set_xscale("symlog", linthresh=0.01)
        ax.set_xticks([0, 0.005, 0.01, 0.1, 1], ["0", "0.005", "0.01", "0.1", "1"])
        ax.set_xlim(-0.001, 1)
        ax.set_xlabel("Share of rounds with a weak outcome\n(linear up to 0.01)")
    figures.legend_below(list(panels))
    return fig


BEYOND = ("late", "repeated", "forbidden")
"""Levels of outcomes that LOCO must not show."""

experiment = Experiment(
    id="loco/litmus",
    title="Outcomes of litmus tests through LOCO's objects and over raw operations",
    profile="c6525-25g",
    axes={"series": Axis(["raw", "LOCO"]), "rounds": Axis([300], full=[10_000])},
    measure=measure,
    figure=figure,
    max_repetitions=1,
)
