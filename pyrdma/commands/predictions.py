"""The predictions among verdicts, as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyrdma.claims import Verdict
from pyrdma.predictions import COLUMNS, by_kind, median_error

__all__ = ["predictions"]


def predictions(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield lines that count the validation claims by kind, and their errors.

    Claims on one datum count once. ``held`` includes the robust ones.
    """
    yield f"{'Predictions':24}" + "".join(f"{name:>{_width(name)}}" for name in COLUMNS)
    for kind, numbers in by_kind(verdicts).items():
        cells = zip(numbers, COLUMNS, strict=True)
        yield f"  {kind:22}" + "".join(f"{n:{_width(name)}}" for n, name in cells)
    if line := median_error(verdicts):
        yield f"  {line}"
    again = sum(1 for v in verdicts if v.role == "validation" and v.decidable and v.same_as)
    if again:
        yield f"  {again} more state the data of others again and do not count"


def _width(name: str) -> int:
    return len(name) + 2
