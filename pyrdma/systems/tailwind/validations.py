"""Tailwind's entries of ``pyrdma validate``."""

from __future__ import annotations

from typing import Any

from pyrdma.validation import Validation

from .generated import TailwindStore

__all__ = ["validations"]


def validations() -> list[Validation]:
    """Return the entries: reads of one server, and writes that another one backs up.

    A server, the coordinator and the client have a busy thread each, and so has the backup.
    """
    load: dict[str, Any] = {
        "workers": 0,
        "keys": 10_000,
        "in_flight": 16,
        "zipf": 0.0,
        "primaries": 1,
        "lease_ms": 60_000,
    }
    reads = TailwindStore(servers=1, replicas=0, reads=1.0, **load)
    writes = TailwindStore(servers=2, replicas=1, **load)
    return [
        Validation("tailwind/reads", reads, nodes=3),
        Validation("tailwind/writes", writes, nodes=4),
    ]
