"""Asynchronous one-sided READ of 8 B: throughput of 1 to 240 clients (section 5.2)."""

from __future__ import annotations

from experiments._needs import each, needs
from experiments.krcore import _one_sided
from pyrdma import Experiment, decide

experiment = Experiment(
    id="krcore/fig10b",
    title="One-sided READ, asynchronous, 8 B",
    profile="krcore",
    axes={"clients": _one_sided.CLIENTS},
    measure=_one_sided.measure("read", batch=_one_sided.BATCH),
    figure=_one_sided.figure(
        "krcore/fig10b", "read", f"One-sided READ of 8 B, batches of {_one_sided.BATCH}"
    ),
    fabrics=("sim", "verbs"),
    why_not={"shm": "240 clients need 240 cores; fabric/rate measures this machine's own rates"},
    decides={
        "krcore/f10b_verbs_peak": decide.value("rate", clients=240),
        **each(
            ["krcore/f10b_rc_peak", "krcore/f10b_dc_peak", "krcore/f10b_dc_loss"],
            needs("KRCore, which is not built yet"),
        ),
    },
)
