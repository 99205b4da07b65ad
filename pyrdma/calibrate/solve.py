"""Find the parameters for which the simulator measures what the machine measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyrdma.profiles import parameters

from .rows import Row

__all__ = ["Agreement", "solve"]

_SWEEPS = 4
"""Passes over all rows: a row changes the parameters that earlier rows have found."""

_STEPS = 12
_CLOSE = 0.002


@dataclass(frozen=True)
class Agreement:
    """A row as it was measured and as the profile predicts it, in nanoseconds."""

    row: Row
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Return the relative error of the prediction."""
        return self.simulated / self.measured - 1


def solve(
    rows: Sequence[Row],
    measured: Mapping[str, float],
    values: dict[str, float],
    simulate: Callable[[Mapping[str, float], Row], float],
) -> list[Agreement]:
    """Set the parameters of the rows in `values`, and return how well every row then agrees.

    `measured` has the nanoseconds of each row by `Row.what`. A parameter stays at a bound of its
    range when no value makes the row agree.
    """
    fitted = [row for row in rows if row.parameter]
    for _ in range(_SWEEPS):
        before = dict(values)
        for row in fitted:
            _fit(row, measured[row.what], values, simulate)
        if all(_near(values[row.parameter], before[row.parameter]) for row in fitted):
            break
    return [Agreement(row, measured[row.what], simulate(values, row)) for row in rows]


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _CLOSE * max(abs(a), abs(b))


def _fit(
    row: Row,
    target: float,
    values: dict[str, float],
    simulate: Callable[[Mapping[str, float], Row], float],
) -> None:
    """Set the row's parameter by secants between bounds; more time gives a slower row."""
    unit, low, high = parameters()[row.parameter]

    def of_time(time: float) -> float:
        """Return the parameter of which a nanosecond of the row is a multiple."""
        if unit == "Gbps":
            return min(high, max(low, row.bytes * 8 / max(time, 1e-9)))
        return min(high, max(low, time / 1000 if unit == "us" else time))

    def error(time: float) -> float:
        values[row.parameter] = of_time(time)
        return simulate(values, row) - target

    value = values[row.parameter]
    time = row.bytes * 8 / value if unit == "Gbps" else value * 1000 if unit == "us" else value
    found = error(time)
    under, over = 0.0, float("inf")  # times whose row is too fast, too slow
    slope = 1.0
    for _ in range(_STEPS):
        if abs(found) <= _CLOSE / 2 * target:
            return
        under, over = (max(under, time), over) if found < 0 else (under, min(over, time))
        step = time - found / slope
        if not under < step < over:
            step = (under + over) / 2 if over < float("inf") else under * 2 + target
        if over - under <= 1e-4 * target and over < float("inf"):
            break
        following = error(step)
        if step != time and (following - found) / (step - time) > 0.01:
            slope = (following - found) / (step - time)
        time, found = step, following
    if over <= 1e-9:  # too slow even without the parameter
        values[row.parameter] = of_time(0)
