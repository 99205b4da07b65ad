"""Synchronous one-sided READ of 8 B: throughput and latency of 1 to 240 clients (section 5.2)."""

from __future__ import annotations

from experiments._needs import each, needs
from experiments.krcore import _one_sided
from pyrdma import Experiment, decide

experiment = Experiment(
    id="krcore/fig10a",
    title="One-sided READ, synchronous, 8 B",
    profile="krcore",
    axes={"clients": _one_sided.CLIENTS},
    measure=_one_sided.measure("read", batch=1),
    figure=_one_sided.figure("krcore/fig10a", "read", "One-sided READ of 8 B, one at a time"),
    fabrics=("sim", "verbs"),
    why_not={"shm": "240 clients need 240 cores; fabric/rate measures this machine's own rates"},
    decides={
        "krcore/f10a_verbs_1": decide.value("read_latency_mean", clients=1),
        "krcore/f12a_verbs": decide.value("read_latency_mean", clients=1),
        "krcore/verbs_data_old": decide.value("read_latency_mean", clients=1),
        "krcore/syscall_cost": decide.profile("cpu.system_call_ns"),
        **each(
            [
                "krcore/f10a_rc_1",
                "krcore/f10a_dc_1",
                "krcore/f10a_rc_overhead",
                "krcore/f10a_dc_overhead",
                "krcore/f10a_rank",
            ],
            needs("KRCore, which is not built yet"),
        ),
    },
)
