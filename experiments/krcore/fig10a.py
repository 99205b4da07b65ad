"""Synchronous one-sided READ of 8 B: throughput and latency of 1 to 240 clients (section 5.2)."""

from __future__ import annotations

from experiments.krcore import _one_sided
from pyrdma import decide

experiment = _one_sided.experiment(
    "fig10a",
    "One-sided READ of 8 B, one at a time",
    "read",
    1,
    {
        "krcore/f10a_verbs_1": decide.value("latency", series="verbs", clients=1),
        "krcore/f10a_rc_1": decide.value("latency", series="KRCore(RC)", clients=1),
        "krcore/f10a_dc_1": decide.value("latency", series="KRCore(DC)", clients=1),
        "krcore/verbs_data_old": decide.value("latency", series="verbs", clients=1),
        "krcore/syscall_cost": decide.profile("cpu.system_call_ns"),
        "krcore/f10a_rc_overhead": _one_sided.excess("KRCore(RC)"),
        "krcore/f10a_dc_overhead": _one_sided.excess("KRCore(DC)"),
        "krcore/f10a_rank": _one_sided.order,
    },
)
