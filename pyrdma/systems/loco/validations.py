"""LOCO's entries of ``pyrdma validate``."""

from __future__ import annotations

from pyrdma.validation import Validation

from .generated import LocoBarrier, LocoLock, LocoTransactions, LocoYcsb

__all__ = ["validations"]

ACCOUNTS, KEYS = 1_000_000, 100_000


def validations() -> list[Validation]:
    """Return the entries: every channel's main operation, with one thread on each node."""
    return [
        Validation("loco/barrier", LocoBarrier()),
        Validation("loco/lock_alone", LocoLock(), nodes=1),
        Validation("loco/lock_contended", LocoLock()),
        Validation("loco/transactions", LocoTransactions(accounts=ACCOUNTS)),
        *(
            Validation(
                f"loco/{name}_{window}",
                LocoYcsb(reads=reads, keys=KEYS, fill=1.0, window=window),
            )
            for name, reads in (("lookups", 1.0), ("updates", 0.0))
            for window in (3, 128)
        ),
    ]
