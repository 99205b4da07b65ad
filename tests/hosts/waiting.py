"""Waits for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def soon(holds: Callable[[], bool], limit_s: float = 10) -> bool:
    """Return whether a condition holds within a time."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
