"""What the recovery of a dead server took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Crash", "Recovery"]

COLUMNS = (
    "node",
    "life",
    "suspected_ns",
    "declared_ns",
    "read_ns",
    "outwaited_ns",
    "assigned_ns",
    "ended_ns",
    "attempts",
    "partitions",
    "objects",
    "bytes",
    "replicas",
    "problem",
    "lost",
)
"""Columns of the coordinator's reports."""


@dataclass(frozen=True)
class Recovery:
    """What the recovery of a dead server took.

    Attributes
    ----------
    node
        The node of the dead server.
    detected_s
        Seconds from the kill until the coordinator took the server for dead.
    inventory_s
        Seconds in which the coordinator read, and backups scanned, the replicas of its log.
    lease_s
        Seconds in which the coordinator waited for the end of the server's lease.
    replay_s
        Seconds in which the new owners stored and replicated everything.
    total_s
        Seconds from the kill to the end of the recovery.
    objects, bytes
        Objects that the new owners have stored, and their bytes in the log.
    partitions
        Number of parts of the work; one server recovers each.
    attempts
        Number of attempts. It is above 1 if another server died meanwhile or replicas were missing.
    lost
        What no server has any more, if more died than the store survives; empty if nothing is lost.
        Objects then may be missing, older than was acknowledged, or back though they were removed.
    """

    node: int
    detected_s: float
    inventory_s: float
    lease_s: float
    replay_s: float
    total_s: float
    objects: int
    bytes: int
    partitions: int
    attempts: int
    lost: str = ""

    @property
    def frame(self) -> DataFrame:
        """Time per phase: a row for each, with columns ``phase`` and ``seconds``."""
        from pandas import DataFrame

        phases = ("detected", "inventory", "lease", "replay", "total")
        return DataFrame(
            {
                "phase": phases,
                "seconds": [getattr(self, f"{phase}_s") for phase in phases],
            }
        )


@dataclass(frozen=True)
class Crash:
    """A server that was killed, and its recovery by the others."""

    node: int
    recovery: Recovery


def recovery_of(row: Mapping[str, Any], killed_ns: int) -> Recovery:
    """Return the times of the coordinator's report about a server that died at `killed_ns`."""
    names = ("declared_ns", "read_ns", "outwaited_ns", "ended_ns")
    declared, read, outwaited, ended = (row[name] - killed_ns for name in names)
    return Recovery(
        node=row["node"],
        detected_s=declared / 1e9,
        inventory_s=(read - declared) / 1e9,
        lease_s=(outwaited - read) / 1e9,
        replay_s=(ended - outwaited) / 1e9,
        total_s=ended / 1e9,
        objects=row["objects"],
        bytes=row["bytes"],
        partitions=row["partitions"],
        attempts=row["attempts"],
        lost=row["lost"],
    )
