"""The cost of the read of no bytes between an update's write and the release of its lock (7.2).

The paper states 15 % for both systems and does not name the workload. Here it is updates of uniform
keys, on 4 nodes of 4 threads with window 3. Without the fence LOCO's update releases its lock when
the write has completed, and Sherman's update posts the unlock directly behind the write.

In the simulator both systems lose less than in the paper, since the read adds no round trip. LOCO
posts it directly behind the write (in the best preset with the same doorbell) and waits for one
round trip in either case. The target executes Sherman's write, read and unlock in sequence without
a pause. The remaining cost is the read's time in the NICs and the flush of the preceding write at
the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.loco import _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = 0.15  # of the rate, in both systems
SERIES = {
    "loco_w3": "LOCO, paper",
    "loco_w3_best": "LOCO, best",
    "sherman": "Sherman (model)",
}


def measure(point: Point) -> Any:
    """Measure updates per second."""
    found = _store.rate(
        point, point["series"], "write-only", "uniform", fence=point["fence"] == "with"
    )
    return {
        "update_rate": (found.value("rate"), "op/s"),
        "update_latency_p50": (found.latency("update").percentile(50), "ns"),
    }


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - two numbers
    """Draw both rates of both systems."""
    fig, (left, right) = figures.new(1, 2)
    for ax, metric, unit, label in (
        (left, "update_rate", "Mop/s", "Updates (M/s)"),
        (right, "update_latency_p50", "us", "Median latency of an update (µs)"),
    ):
        values = {
            f"{fence} fence": [data.value(metric, unit, series=s, fence=fence) for s in SERIES]
            for fence in ("without", "with")
        }
        figures.bars(ax, list(SERIES.values()), values)
        _axes.write_values(ax)
        if metric == "update_rate":
            for place, rate in enumerate(values["without fence"]):
                paper = rate * (1 - PAPER)
                _axes.hollow(
                    ax, place + 0.2, paper, "15 % less, as in the paper" if not place else "_"
                )
        ax.set(ylabel=label, ylim=(0, 1.45 * max(max(v) for v in values.values())))
        ax.legend()
    return fig


def loss(series: str) -> decide.Decider:
    """Compare the share of the rate that the fence costs with the claim."""
    return decide.ratio(
        "update_rate", {"fence": "with"}, {"fence": "without"}, form="loss", series=series
    )


experiment = Experiment(
    id="loco/sec7_2_fence",
    title="Cost of the fence between an update and its unlock",
    profile="c6525-25g",
    axes={
        "series": Axis(list(SERIES)),
        "fence": Axis(["without", "with"]),
        "nodes": Axis([4]),
        "threads": Axis([4]),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "16 threads need a core each"},
    decides={
        "loco/fence_overhead_loco": loss("loco_w3"),
        "loco/fence_overhead_sherman": loss("sherman"),
    },
)
