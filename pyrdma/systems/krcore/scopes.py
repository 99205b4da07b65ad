"""The workloads that pass through each step of KRCore; see `pyrdma.scopes`."""

from __future__ import annotations

from pyrdma.scopes import Calibration

__all__ = ["CALIBRATIONS"]

_RUN = ("cores=1", "arena_bytes=1048576", "iterations=60", "duration_ns=0")
_READS = ("cores=1", "arena_bytes=1048576", "duration_ns=0", "region_bytes=65536")
_FIRST = "krcore/push"

CALIBRATIONS = (
    # Long enough that its start is a small part.
    Calibration("krcore_one_sided", _FIRST, (*_READS, "iterations=1000"), nodes=3),
    Calibration("krcore_one_sided", _FIRST, (*_READS, "iterations=60", "miss=1"), nodes=3),
    Calibration("krcore_echo", _FIRST, (*_RUN, "server_threads=1"), nodes=3),
    # Few queues, so that most creations find a place that has been used.
    Calibration("krcore_connect", "krcore/connect", (*_RUN, "virtual_queue_pairs=16"), nodes=3),
    Calibration(
        "krcore_connect",
        "krcore/metadata_ask",
        (*_RUN, "metadata=rpc"),
        nodes=3,
        steps="krcore/metadata_",
    ),
    Calibration(
        "krcore_race",
        "krcore/race_start",
        (*_RUN[:1], *_RUN[2:], "keys=200", "reads=0.5"),
        nodes=3,
        steps="krcore/race_",
    ),
    Calibration(
        "krcore_lite",
        "krcore/lite_post",
        ("mode=async", "window=16", "iterations=960", "duration_ns=0", "region_bytes=65536"),
        nodes=3,
        steps="krcore/lite_",
    ),
)
