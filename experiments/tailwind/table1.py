"""Cluster configuration (table 1): the profile holds the numbers, nothing is measured."""

from __future__ import annotations

from pyrdma import Experiment, decide

experiment = Experiment(
    id="tailwind/table1",
    title="Cluster configuration",
    profile="r320",
    measure=None,
    decides={
        "tailwind/cal_link_rate": decide.profile("link.rate_gbps"),
        "tailwind/cal_cores": decide.profile("cores_per_node"),
    },
)
