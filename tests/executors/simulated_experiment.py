"""Points of some seconds each, for the speed of executors."""

from __future__ import annotations

from typing import Any

import pyrdma as rd


def measure(point: rd.Point) -> Any:
    """Simulate 64 B writes of four nodes, for as long as the point asks."""
    with point.cluster(nodes=4) as cluster:
        load = rd.workload.VerbsLoad(op="write", size=64, depth=16)
        return cluster.run(load, duration_s=point["duration_s"])


experiment = rd.Experiment(
    id="simulated/writes",
    title="Writes, for some seconds",
    profile="cx5",
    axes={"duration_s": rd.Axis([0.85], unit="s"), "n": rd.Axis(list(range(1, 13)), unit="count")},
    measure=measure,
    fabrics=("sim",),
    target="rate",
    why_not={"shm": "only the simulation's speed counts", "verbs": "the same"},
)
