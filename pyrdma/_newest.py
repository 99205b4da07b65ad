"""Which of several measurements of a point is the newest one."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from .store import Measurement, Task

__all__ = ["RUN", "newest", "pairs", "same_code", "subject"]

_CODE = ("code", "profile_digest")
"""Fields of an identity that say what measured a point."""
RUN = ("seed", "repetition")
"""Fields that say which run of a point it is."""


def newest(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the newest measurement of every point; see `pyrdma.results`."""
    ordered = _by_run(measurements)
    last = {subject(m.identity, *RUN): m for m in ordered}
    same = (m for m in ordered if same_code(m, last[subject(m.identity, *RUN)]))
    return list({subject(m.identity): m for m in same}.values())


def _by_run(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Order measurements by their runs; a clock that says otherwise gives a warning."""
    ordered = sorted(measurements, key=lambda m: m.order)
    last: dict[tuple[Any, ...], Measurement] = {}
    for m in ordered:
        before = last.get(subject(m.identity, *RUN), m)
        if before.run < m.run and before.stopped > m.stopped:
            warnings.warn(
                f"points of {m.identity['experiment']} of run {before.run} are dated "
                f"{before.stopped}, and later ones of run {m.run} {m.stopped}: a clock was wrong, "
                "or the points come from two folders; the order of the runs decides which are "
                "newer",
                RuntimeWarning,
                stacklevel=3,
            )
            break
        last[subject(m.identity, *RUN)] = m
    return ordered


def subject(identity: Mapping[str, Any], *apart: str) -> tuple[Any, ...]:
    """Return what was measured, whatever code measured it, without the fields `apart`.

    Equal values of two types, such as 1 and 1.0, are one point.
    """
    fields = {name: v for name, v in identity.items() if name not in (*_CODE, *apart)}
    return tuple(sorted((n, pairs(v) if isinstance(v, dict) else v) for n, v in fields.items()))


def pairs(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return a mapping as a key of other mappings."""
    return tuple(sorted(values.items()))


def same_code(a: Measurement, b: Measurement | Task) -> bool:
    """Return whether the same code measured both, under the same profile."""
    return all(a.identity[name] == b.identity[name] for name in _CODE)
