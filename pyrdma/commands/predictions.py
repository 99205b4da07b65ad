"""The predictions among verdicts, counted: of the claims that set no parameter."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from pyrdma import claims
from pyrdma.claims import Verdict

__all__ = ["predictions"]


def predictions(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield lines that count the validation claims by kind, and their errors.

    Claims on one datum count once. ``held`` includes the robust ones.
    """
    counted = claims.counted(v for v in verdicts if v.role == "validation" and v.decidable)
    columns = (
        "held",
        "robust",
        "not robust",
        "missed",
        "stale",
        "by construction",
        "not evaluated",
    )
    yield f"{'Predictions':24}" + "".join(f"{name:>{_width(name)}}" for name in columns)
    for kind in [*sorted({v.kind for v in counted}), "all"]:
        of_kind = [v for v in counted if kind in (v.kind, "all")]
        numbers = (
            *(sum(v.verdict == "held" for v in of_kind), sum(v.robust is True for v in of_kind)),
            len(claims.select(of_kind, claims.NOT_ROBUST)),
            *(len(claims.select(of_kind, name)) for name in columns[3:]),
        )
        cells = zip(numbers, columns, strict=True)
        yield f"  {kind:22}" + "".join(f"{n:{_width(name)}}" for n, name in cells)
    errors = [v.error for v in counted if v.kind == "absolute" and v.error is not None]
    if errors:
        yield (
            f"  median error of {len(errors)} absolute predictions: {statistics.median(errors):.1%}"
        )
    again = sum(1 for v in verdicts if v.role == "validation" and v.decidable and v.same_as)
    if again:
        yield f"  {again} more state the data of others again and do not count"


def _width(name: str) -> int:
    return len(name) + 2
