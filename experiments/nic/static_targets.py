"""READ of 32 B by RC, and by DC with static targets; eight machines load each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

MACHINES = 8
# A queue pair of DC keeps its target, so that nothing reconnects.
LOADS: Mapping[str, Mapping[str, Any]] = {
    "rc": {"pattern": "random", "qps": MACHINES - 1},
    "dc": {"pattern": "pair", "qps": 1},
}


def measure(point: Point) -> Any:
    """Measure one machine's rate; the source does not state the window, 32 in flight fill it."""
    return _load.rate(
        point,
        nodes=MACHINES,
        machines=MACHINES,
        servers=0,
        op="read",
        transport=point["transport"],
        size=32,
        threads=14,
        depth=32,
        batch=1,
        signal_every=1,
        **LOADS[point["transport"]],
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="transport",
    xlabel="",
    ylabel="READ of a machine (M/s)",
    names={"rc": "RC", "dc": "DC"},
)

experiment = _sweep.experiment(
    "static_targets",
    "READ by RC and by DC with static targets, eight Connect-IB machines to each other",
    "cib",
    measure,
    _sweep.lines("static_targets", CHART),
)
