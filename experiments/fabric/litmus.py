"""Outcomes of small concurrent programs over raw fabric operations, seen and allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyrdma import Axis, Experiment, Point, Row, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.figure_names import SUM
from pyrdma.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 4
CLASSES = {
    "sequential": "strong",
    "asynchronous": "strong",
    "late": "weak",
    "repeated": "weak",
    "store buffer": "weak",
    "forbidden": "forbidden",
}
"""Class of an outcome, by the level of the model that first allows it."""
SERIES: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "sequential": (("sequential",), {"marker": "o", "color": "#BBBBBB", "markersize": 5}),
    "strong": (("asynchronous",), {"marker": "^", "color": "#228833", "markersize": 5}),
    "weak": (
        ("late", "repeated", "store buffer"),
        {"marker": "s", "color": "#004488", "markersize": 5.5, "markerfacecolor": "none"},
    ),
    "forbidden": (("forbidden",), {"marker": "X", "color": "#000000", "markersize": 8}),
}
"""Levels and style of each series in the figure."""
NEVER = 1e-6
"""Where an outcome that was never seen is drawn: below one of all rounds of any run."""


def rows_of(result: Result, memory: str) -> list[Row]:
    """Make tidy rows: ``seen`` for each outcome, then ``forbidden``, ``unseen`` and ``rounds``."""
    rows = []
    for sample in result.samples:
        labels = {"memory": memory, "shape": "all", "level": "", "kind": "", "outcome": ""}
        metric = sample.metric
        if metric.startswith("outcome|"):
            metric = "seen"
            _, labels["shape"], labels["level"], labels["outcome"] = sample.metric.split("|")
            labels["kind"] = CLASSES[labels["level"]]
        rows.append(Row(metric, sample.value, sample.unit, labels))
    return rows


def measure(point: Point) -> list[Row]:
    """Run all shapes: with weak and with strong memory on sim, once on other fabrics."""
    suite = workload.Litmus(rounds=point["rounds"])
    rows = []
    for memory in ("weak", "strong") if point.fabric == "sim" else (point.fabric,):
        options = {"memory": memory} if point.fabric == "sim" else {}
        with point.cluster(nodes=NODES, **options) as cluster:
            rows += rows_of(cluster.run(suite, timeout_s=3600), memory)
    return rows


def draw_half(ax: Any, frame: Any, shapes: list[str]) -> None:
    """Draw a dot per kind of outcome of a shape; allowed outcomes never seen lie at the left."""
    rounds = frame.groupby("shape")["value"].sum()
    for label, (levels, style) in SERIES.items():
        xs, ys = [], []
        for y, shape in enumerate(shapes):
            rows = frame[(frame["shape"] == shape) & frame["level"].isin(levels)]
            if len(rows):
                xs.append(max(rows["value"].sum() / rounds[shape], NEVER))
                ys.append(y)
        ax.plot(xs, ys, linestyle="none", label=label, gid=SUM, **style)
    ax.axvline(NEVER, color="black", linewidth=0.6, linestyle=":")
    ax.set_xscale("log")
    ax.set_xlim(NEVER / 2, 2)
    ax.set_yticks(range(len(shapes)), shapes, fontsize=6)
    ax.set_ylim(len(shapes) - 0.4, -0.6)
    ax.set_xlabel("Share of rounds (dotted: allowed, never seen)")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no claims here
    """Draw the shapes in two halves; on sim, those of weak memory.

    Shapes with sequential outcomes alone are counted in the title, not drawn.
    """
    seen = data.select("seen")
    memory = "weak" if "weak" in set(seen["memory"]) else str(seen["memory"].iloc[0])
    frame = seen[seen["memory"] == memory]
    every = list(dict.fromkeys(frame["shape"]))
    beyond = set(frame[frame["level"] != "sequential"]["shape"])
    shapes = [shape for shape in every if shape in beyond]
    half = -(-len(shapes) // 2)
    fig, panels = figures.new(1, 2, height=0.125 * half + 0.8)
    fig.set_layout_engine("constrained", w_pad=0.06)  # long names are wider in the file
    for ax, part in zip(panels, (shapes[:half], shapes[half:]), strict=True):
        draw_half(ax, frame, part)
    forbidden = int(frame[frame["kind"] == "forbidden"]["value"].sum())
    total = int(frame["value"].sum())
    fig.suptitle(
        f"{data.fabric}, {memory} memory: {total:,} rounds, {forbidden:,} forbidden; "
        f"the other {len(every) - len(shapes)} shapes have sequential outcomes alone",
        fontsize=8,
    )
    figures.legend_below(list(panels))
    return fig


experiment = Experiment(
    id="fabric/litmus",
    title="Outcomes of litmus tests over raw fabric operations",
    profile="cx5",
    axes={"rounds": Axis([10_000], full=[100_000])},
    measure=measure,
    figure=figure,
    max_repetitions=1,
)
