from collections.abc import Mapping, Sequence
from typing import Any

def scenarios() -> list[dict[str, Any]]:
    """Return what each scenario has, as pyrdma.fuzz.systems() says."""

def run(
    system: str,
    seed: int,
    profile: Mapping[str, float],
    nodes: int | None = ...,
    operations: int | None = ...,
    weak: bool | None = ...,
    faults: Mapping[str, float] | None = ...,
    kinds: Sequence[str] | None = ...,
    kept: Sequence[tuple[int, int]] | None = ...,
    mutation: str = ...,
    preset: str = ...,
    trace: bool = ...,
    history: bool = ...,
    events: bool = ...,
    timeline: tuple[int, int, int] | None = ...,
) -> dict[str, Any]:
    """Run one seed; return counters, events and violations."""
