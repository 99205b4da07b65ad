"""Helpers of the experiments on LOCO's locks."""

from __future__ import annotations

from typing import Literal

from pyrdma import Point

__all__ = ["MPI_NOTE", "polling"]

MPI_NOTE = "MPI: a model of Open MPI's window locks on the same fabric"


def polling(point: Point) -> Literal["thread", "callers"]:
    """Return the poller: a polling thread as in the paper (A.1), unless the machine lacks cores."""
    return "callers" if point.fabric == "shm" else "thread"
