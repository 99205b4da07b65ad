"""Synchronous one-sided WRITE of 8 B: throughput and latency of 1 to 240 clients (section 5.2)."""

from __future__ import annotations

from experiments._needs import needs
from experiments.krcore import _one_sided
from pyrdma import Experiment

experiment = Experiment(
    id="krcore/fig10c",
    title="One-sided WRITE, synchronous, 8 B",
    profile="krcore",
    axes={"clients": _one_sided.CLIENTS},
    measure=_one_sided.measure("write", batch=1),
    figure=_one_sided.figure("krcore/fig10c", "write", "One-sided WRITE of 8 B, one at a time"),
    fabrics=("sim", "verbs"),
    why_not={"shm": "240 clients need 240 cores; fabric/rate measures this machine's own rates"},
    decides={"krcore/f10c_like_read": needs("KRCore, which is not built yet")},
)
