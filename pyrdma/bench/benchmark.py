"""What one benchmark is, and the row that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .peer import Availability, Peer

__all__ = ["Benchmark", "Better", "PeerRun", "Row", "ratio"]


class Better(Enum):
    """Which values of a benchmark are the better ones."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True)
class PeerRun:
    """The peer's side of a benchmark.

    Attributes
    ----------
    name : str
        The peer's name.
    measure : callable
        One measurement, in the benchmark's unit.
    available : callable
        Whether `measure` can run.
    """

    name: str
    measure: Callable[[], float]
    available: Callable[[], Availability]

    @classmethod
    def of(cls, peer: Peer, measurement: str, scale: float = 1.0, seconds: float = 0.4) -> PeerRun:
        """Return the run of one of a peer's measurements, multiplied by `scale`."""

        def measure() -> float:
            return peer.run([measurement], seconds)[measurement] * scale

        return cls(peer.NAME, measure, peer.available)


@dataclass(frozen=True)
class Benchmark:
    """One number of ours, beside the same number of a peer.

    Attributes
    ----------
    name : str
        ``sim/...``, ``shm/...``, ``python/...``, ``build/...`` or ``<system>/...``.
    unit : str
        Of both values.
    better : Better
        Direction.
    ours : callable
        One measurement of ours; takes well under two seconds unless `opt_in`.
    about : str
        What exactly is measured on both sides.
    peer : PeerRun, optional
        The peer's side.
    rounds : int
        At most so many measurements.
    opt_in : bool
        Runs only when asked for by name.
    least : int
        At least so many measurements, whatever the time.
    """

    name: str
    unit: str
    better: Better
    ours: Callable[[], float]
    about: str
    peer: PeerRun | None = None
    rounds: int = 5
    opt_in: bool = False
    least: int = 1


@dataclass(frozen=True)
class Row:
    """One row of the table; its fields are those of ``pyrdma bench --json``."""

    name: str
    unit: str
    value: float | None
    peer: str | None
    peer_value: float | None
    ratio: float | None


def ratio(better: Better, ours: float | None, peers: float | None) -> float | None:
    """Return how many times better than the peer's our value is; None when one is missing."""
    if ours is None or peers is None or ours <= 0 or peers <= 0:
        return None
    return ours / peers if better is Better.HIGHER else peers / ours
