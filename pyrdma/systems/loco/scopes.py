"""The workloads that pass through each step of LOCO; see `pyrdma.scopes`."""

from __future__ import annotations

from pyrdma.scopes import Calibration

__all__ = ["CALIBRATIONS"]

_RUN = ("threads=2", "polling=thread", "warmup_ns=15000")
_YCSB = (*_RUN, "duration_ns=30000", "locks=64")

CALIBRATIONS = (
    Calibration(
        "loco_ycsb",
        "loco/ycsb_begin",
        (
            *_YCSB,
            "reads=0.2",
            "inserts=0.4",
            "removes=0.4",
            "keys=60",
            "fill=0.5",
            "tracker_pause_ns=1000",
        ),
    ),
    Calibration("loco_ycsb", "loco/ycsb_begin", (*_YCSB, "reads=0.5", "keys=3000")),
    Calibration(
        "loco_ycsb",
        "loco/ycsb_begin",
        (*_YCSB, "system=sherman", "reads=0.5", "keys=3000", "theta=0.99"),
    ),
    Calibration("loco_lock", "loco/lock_section", (*_RUN, "duration_ns=400000")),
    Calibration(
        "loco_lock",
        "loco/lock_section",
        ("threads=2", "duration_ns=400000", "preset=paper", "fence=thread"),
    ),
    Calibration(
        "loco_lock",
        "loco/lock_section",
        ("threads=2", "duration_ns=400000", "preset=paper", "fence=pair"),
    ),
    Calibration(
        "loco_lock", "loco/lock_section", (*_RUN, "duration_ns=200000", "system=test_and_set")
    ),
    *(
        Calibration(
            "loco_transactions",
            "loco/transfer",
            (
                *_RUN,
                "duration_ns=100000",
                "accounts=3000",
                "locks_per_thread=30",
                f"system={bank}",
            ),
        )
        for bank in ("loco", "mpi_windows")
    ),
    Calibration("loco_barrier", "loco/barrier_turn", ("polling=thread", "duration_ns=80000")),
    Calibration("loco_power", "loco/power_control", ("duration_ns=2500000",)),
)
