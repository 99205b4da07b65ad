"""One benchmark, and its row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .peer import Availability, Peer

__all__ = ["Benchmark", "Better", "PeerRun", "Row", "ratio"]


class Better(Enum):
    """Whether higher or lower values of a benchmark are better."""

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
        Takes one measurement, in the benchmark's unit.
    available : callable
        Returns whether `measure` can run.
    """

    name: str
    measure: Callable[[], float]
    available: Callable[[], Availability]

    @classmethod
    def of(cls, peer: Peer, measurement: str, scale: float = 1.0, seconds: float = 0.4) -> PeerRun:
        """Return the run of a peer's `measurement`; its values are multiplied by `scale`."""

        def measure() -> float:
            return peer.run([measurement], seconds)[measurement] * scale

        return cls(peer.NAME, measure, peer.available)


@dataclass(frozen=True)
class Benchmark:
    """One number of pyrdma, beside the same number of a peer.

    Attributes
    ----------
    name : str
        ``sim/...``, ``shm/...``, ``python/...``, ``build/...`` or ``<system>/...``.
    unit : str
        Unit of both values.
    better : Better
        Whether higher or lower values are better.
    ours : callable
        Takes one measurement of pyrdma, in well under two seconds unless `opt_in`.
    about : str
        Description of both measurements.
    peer : PeerRun, optional
        The peer's side.
    rounds : int
        Largest number of measurements.
    opt_in : bool
        Whether the benchmark runs only if the user names it.
    least : int
        Least number of measurements, even beyond the time budget.
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
    """Return how many times better pyrdma's value is than the peer's; None if one is missing."""
    if ours is None or peers is None or ours <= 0 or peers <= 0:
        return None
    return ours / peers if better is Better.HIGHER else peers / ours
