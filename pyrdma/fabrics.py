"""The fabrics: their names, and the reason why one is missing."""

from __future__ import annotations

import os

from . import devices
from ._native import native
from .errors import InvalidArgument, Unavailable, nearest

__all__ = ["FABRICS", "check_fabric_name", "fabric_problem"]

FABRICS = ("sim", "shm", "verbs")


def check_fabric_name(fabric: str) -> None:
    """Raise `InvalidArgument` unless there is a fabric of this name."""
    if fabric not in FABRICS:
        raise InvalidArgument(
            f"unknown fabric {fabric!r}{nearest(fabric, FABRICS)}; one of {', '.join(FABRICS)}"
        )


def fabric_problem(fabric: str) -> str:
    """Return why a fabric is missing and what to do; an empty text if the fabric is there."""
    try:
        native()
    except Unavailable as error:
        return str(error)
    if fabric == "shm":
        return "" if hasattr(os, "memfd_create") else "this system has no memory files; use Linux"
    return _verbs_problem() if fabric == "verbs" else ""


def _verbs_problem() -> str:
    """Return what real NICs lack here: support in the build, rdma-core, or a device."""
    missing = devices.problem()
    if missing:
        return missing
    try:
        devices.choose()
    except Unavailable as error:
        return str(error)
    return ""
