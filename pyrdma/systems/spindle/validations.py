"""Spindle's entries of ``pyrdma validate``."""

from __future__ import annotations

from pyrdma.validation import Validation

from .workloads import Multicast

__all__ = ["validations"]


def validations() -> list[Validation]:
    """Return the entries: one busy thread per node runs the predicates and sends."""
    small = Multicast(
        preset="best", predicate_thread="sender", message=64, max_message=64, messages=20_000
    )
    large = Multicast(preset="best", predicate_thread="sender", messages=5_000)
    return [
        Validation("spindle/small", small, "message_rate", "op/s"),
        Validation("spindle/large", large, "delivered_bandwidth", "byte/s"),
    ]
