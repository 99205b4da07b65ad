"""The workloads that pass through each step of Tailwind; see `pyrdma.scopes`."""

from __future__ import annotations

from pyrdma.scopes import Calibration

__all__ = ["CALIBRATIONS"]

_RUN = (
    "servers=2",
    "replicas=1",
    "workers=1",
    "keys=200",
    "log_bytes=4194304",
    "segment_bytes=1048576",
    "buffers=4",
    "iterations=60",
    "duration_ns=0",
    "reads=0.5",
    "zipf=0",
)
_FIRST = "tailwind/load_issue"

CALIBRATIONS = (
    Calibration("tailwind_store", _FIRST, (*_RUN, "replication=tailwind"), nodes=4),
    Calibration("tailwind_store", _FIRST, (*_RUN, "replication=ramcloud"), nodes=4),
)
