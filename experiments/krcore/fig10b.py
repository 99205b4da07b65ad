"""Asynchronous one-sided READ of 8 B: throughput of 1 to 240 clients (section 5.2)."""

from __future__ import annotations

from experiments.krcore import _one_sided

experiment = _one_sided.experiment(
    "fig10b",
    f"One-sided READ of 8 B, batches of {_one_sided.BATCH}",
    "read",
    _one_sided.BATCH,
    _one_sided.peaks("f10b"),
)
