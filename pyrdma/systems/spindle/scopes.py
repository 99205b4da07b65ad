"""The workloads that pass through each step of Spindle; see `pyrdma.scopes`."""

from __future__ import annotations

from pyrdma.scopes import Calibration

__all__ = ["CALIBRATIONS"]

# Short messages: the NIC's copies of long ones would make the trace long, and belong to no step.
_RUN = ("max_message=64", "window=16", "start_spread_ns=0")
_FIRST = "spindle/load_message"

CALIBRATIONS = (
    Calibration("spindle_multicast", _FIRST, (*_RUN, "messages=60", "preset=baseline")),
    Calibration("spindle_multicast", _FIRST, (*_RUN, "messages=60", "preset=paper")),
    Calibration(
        "spindle_multicast",
        _FIRST,
        (*_RUN, "messages=60", "preset=paper", "heartbeat_ns=5000"),
        steps="spindle/timers",
    ),
    Calibration(
        "spindle_dds",
        "spindle/keep_sample",
        (*_RUN[:2], "samples=60", "preset=paper", "qos=volatile"),
        steps="spindle/keep_sample",
    ),
)
