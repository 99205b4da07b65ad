"""The predictions among verdicts, counted: of the claims that set no parameter."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from . import claims
from .claims import Verdict

__all__ = ["COLUMNS", "by_kind", "median_error"]

COLUMNS = (
    "held",
    "robust",
    "not robust",
    "missed",
    "stale",
    "by construction",
    "not evaluated",
)
"""What `by_kind` counts; ``held`` includes the robust ones."""


def by_kind(verdicts: Sequence[Verdict]) -> dict[str, tuple[int, ...]]:
    """Return, for each kind of claims and for ``all``, a count for each of `COLUMNS`.

    Claims on one datum count once.
    """
    counted = _counted(verdicts)
    found = {}
    for kind in [*sorted({v.kind for v in counted}), "all"]:
        of_kind = [v for v in counted if kind in (v.kind, "all")]
        found[kind] = (
            *(sum(v.verdict == "held" for v in of_kind), sum(v.robust is True for v in of_kind)),
            len(claims.select(of_kind, claims.NOT_ROBUST)),
            *(len(claims.select(of_kind, name)) for name in COLUMNS[3:]),
        )
    return found


def median_error(verdicts: Sequence[Verdict]) -> str:
    """Return a line about the errors of absolute predictions; an empty text if there are none."""
    absolute = [v.error for v in _counted(verdicts) if v.kind == "absolute"]
    errors = [error for error in absolute if error is not None]
    if not errors:
        return ""
    return f"median error of {len(errors)} absolute predictions: {statistics.median(errors):.1%}"


def _counted(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return claims.counted(v for v in verdicts if v.role == "validation" and v.decidable)
