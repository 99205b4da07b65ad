"""eRPC's entries of ``pyrdma validate``."""

from __future__ import annotations

from pyrdma.validation import Validation

from .workloads import ErpcLoad

__all__ = ["validations"]


def validations() -> list[Validation]:
    """Return the entries: small requests alone and in batches, and large ones."""
    return [
        Validation("erpc/small_alone", ErpcLoad(pattern="pairs")),
        Validation("erpc/small_batches", ErpcLoad(batch=3, in_flight=60)),
        Validation("erpc/large", ErpcLoad(pattern="pairs", request=1_000_000)),
    ]
