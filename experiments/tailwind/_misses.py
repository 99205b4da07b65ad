"""Reasons of misses, by claim. All were measured in quick mode on `sim`."""

from __future__ import annotations

__all__ = ["of"]

MISSES: dict[str, str] = {}


def of(experiment: str) -> dict[str, str]:
    """Return the reasons of an experiment's misses."""
    prefix = f"tailwind/{experiment}_"
    return {claim: why for claim, why in MISSES.items() if claim.startswith(prefix)}
