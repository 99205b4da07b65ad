"""The workloads that pass through each step of eRPC; see `pyrdma.scopes`."""

from __future__ import annotations

from pyrdma.scopes import Calibration

__all__ = ["CALIBRATIONS"]

_RUN = ("warmup_ns=15000", "preset=paper")

# Sixty requests fit into the slots of ten sessions, so few wait in a backlog.
# The steps of the ordered store were counted apart, with 100,000 keys (ordered_store/README.md).
CALIBRATIONS = (
    Calibration(
        "erpc_load",
        "erpc/load_issue",
        (*_RUN, "batch=3", "in_flight=60", "sessions=5", "duration_ns=100000"),
    ),
    Calibration("erpc_load", "erpc/load_issue", (*_RUN, "duration_ns=100000")),
    # Without the bypass each answer computes the rate.
    Calibration("erpc_load", "erpc/rate_update", (*_RUN, "timely_bypass=off", "duration_ns=40000")),
    # The steps that only a switch of table 3 reaches. With one slot the pool grows little.
    *(
        Calibration(
            "erpc_load",
            "erpc/give_buffer_back" if step.endswith("buffer") else step,
            (*_RUN, f"{switch}=off", "slots=1", "duration_ns=100000"),
            steps=step,
        )
        for switch, step in (
            ("rate_limiter_bypass", "erpc/pace"),
            ("rate_limiter_bypass", "erpc/leave_wheel"),
            ("rate_limiter_bypass", "erpc/transmit"),
            ("preallocated_responses", "erpc/take_buffer"),
            ("preallocated_responses", "erpc/give_buffer_back"),
        )
    ),
    *(
        Calibration(
            "erpc_baseline",
            "erpc/baseline_issue",
            ("warmup_ns=15000", "duration_ns=40000", f"system={system}"),
        )
        for system in ("fasst", "farm_ring")
    ),
    Calibration(
        "erpc_raft",
        "erpc/raft_propose",
        (*_RUN, "keys=1000", "reads=0.1", "in_flight=4", "duration_ns=500000"),
        nodes=4,
        steps="erpc/raft_",
    ),
)
