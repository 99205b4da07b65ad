"""Synchronous one-sided WRITE of 8 B: throughput and latency of 1 to 240 clients (section 5.2)."""

from __future__ import annotations

from experiments.krcore import _one_sided

experiment = _one_sided.experiment(
    "fig10c",
    "One-sided WRITE of 8 B, one at a time",
    "write",
    1,
    {"krcore/f10c_like_read": _one_sided.order},
)
