"""The fabrics: their names, and the reason why one is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

from . import devices
from ._native import native
from .arguments import OneOf, checked
from .errors import InvalidArgument, Unavailable

__all__ = ["FABRICS", "FabricName", "fabric_problem"]

FABRICS = ("sim", "shm", "verbs")
FabricName = Annotated[str, OneOf(FABRICS)]


@checked
def fabric_problem(fabric: FabricName) -> str:
    """Return why a fabric is missing and what to do; an empty text if the fabric is there."""
    try:
        native()
    except Unavailable as error:
        return str(error)
    if fabric == "shm":
        return "" if hasattr(os, "memfd_create") else "this system has no memory files; use Linux"
    return _verbs_problem() if fabric == "verbs" else ""


def check_faults(faults: Mapping[str, float] | None, fabric: str) -> None:
    """Refuse faults for real nodes on another fabric than shared memory."""
    if faults and fabric != "shm":
        raise InvalidArgument(
            f"faults={dict(faults)!r} with fabric {fabric!r}; faults need fabric='shm' or "
            "Cluster.sim"
        )


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
