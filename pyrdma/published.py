"""The papers' numbers for single points of an experiment."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import claims, judging
from .claims import Claim
from .data import Data, NotEvaluated
from .decide import ProfileValue
from .errors import InvalidArgument
from .experiment import Experiment
from .units import convert

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Spot", "by_point", "parameters_of", "spots"]

Spot = tuple[Any, ...]
"""Parameters and labels of a number, in the order of `parameters_of`; None where it has none."""


class _OnePoint(Data):
    """Data without series: a decider that reads them is not about one point."""

    def series(self, *_: Any, **__: Any) -> pd.Series:
        raise NotEvaluated("a series is not one point")

    def values_of(self, *_: Any) -> list[Any]:
        raise NotEvaluated("all values are not one point")


def parameters_of(experiment: Experiment, frame: pd.DataFrame) -> list[str]:
    """Return the columns that tell points apart: `Data.parameters`, and an axis of profiles."""
    return [*Data(frame).parameters, *(["profile"] if "profile" in experiment.axes else [])]


def spots(totals: pd.DataFrame, parameters: list[str]) -> list[Spot]:
    """Return the spot of each row."""
    if not parameters:
        return [()] * len(totals)
    rows = totals[parameters].itertuples(index=False, name=None)
    return [tuple(None if v != v else v for v in row) for row in rows]


def by_point(experiment: Experiment, frame: pd.DataFrame) -> dict[tuple[Spot, str], list[Claim]]:
    """Return the claims that state a number of one point, by its spot and metric.

    A claim does if its decider reads this metric at one point alone, and returns it unchanged.

    Parameters
    ----------
    frame
        Tidy rows of points that were measured with the paper's settings.
    """
    totals = frame[frame["scope"] == "total"]
    parameters = parameters_of(experiment, frame)
    at = zip(spots(totals, parameters), totals["metric"], strict=True)
    place = dict(zip(totals.index, at, strict=True))
    known = claims.load()
    found: dict[tuple[Spot, str], list[Claim]] = {}
    for name, decider in experiment.decides.items():
        claim = known.get(name)
        if claim is None or claim.number is None or isinstance(decider, ProfileValue):
            continue
        data = _OnePoint(frame)
        try:
            measured = claims.judge(claim, judging.decided(claim, experiment, data))[1]
            rows = sorted(data.rows_read() or ())
            places = {place[row] for row in rows}
            if len(places) != 1 or not isinstance(measured, (int, float)):
                continue
            median = float(totals.loc[rows, "value"].median())
            same = convert(median, str(totals.loc[rows[0], "unit"]), claim.unit)
        except (NotEvaluated, InvalidArgument):
            continue
        if math.isclose(same, measured, rel_tol=1e-9):
            found.setdefault(places.pop(), []).append(claim)
    return found
