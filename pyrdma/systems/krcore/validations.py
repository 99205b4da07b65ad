"""KRCore's entries of ``pyrdma validate``."""

from __future__ import annotations

from pyrdma.validation import Validation

__all__ = ["validations"]


def validations() -> list[Validation]:
    """Return the entries."""
    return []
