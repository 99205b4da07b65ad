"""A load that two Soft-RoCE guests run, and its clients there: its history is checked."""

from __future__ import annotations

from pyrdma import workload

HISTORY = workload.ErpcRaft(
    history=True, keys=8, iterations=100, warmup_ns=0, reads=0.5, replicas=1
)
CLIENTS = 1
