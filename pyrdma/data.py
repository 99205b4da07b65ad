"""Results of an experiment, as its figure and its deciders read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .arguments import checked, shown
from .errors import Error, InvalidArgument
from .units import convert

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "OVERSUBSCRIBED", "Data", "NotEvaluated"]

COLUMNS = (
    "experiment",
    "profile",
    "overrides",
    "fabric",
    "clock",
    "seed",
    "repetition",
    "quick",
    "code",
    "machine",
    "testbed",
    "host",
    "flags",
    "workloads",
    "scope",
    "node",
    "thread",
    "metric",
    "value",
    "unit",
)
"""Columns of every table of results; all other columns are parameters and labels.

The table of the README says what each one means.
"""

OVERSUBSCRIBED = "oversubscribed"
"""Flag of a point whose nodes on this machine had more busy threads than it has cores."""

_RESERVED = {
    *("operation", "latency"),  # of `pyrdma.load`
    *("a", "b", "ratio", "low", "high", "values_a", "values_b", "differs"),  # of `pyrdma.compare`
    *("median", "mean", "values"),  # of `Table.ci`
}
_NAME = re.compile(r"[A-Za-z_]\w*")


def check_name(name: object, what: str) -> None:
    """Refuse a name that a column of parameters or labels cannot have.

    Raises
    ------
    InvalidArgument
        It is no identifier, or the name of a column that every table has.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(f"{what} is named {name!r}; give letters, digits and _")
    if name in COLUMNS or name in _RESERVED:
        raise InvalidArgument(
            f"{what} is named {name!r}, as a column of tables; choose another name"
        )


_NEEDED = ("fabric", "metric", "node", "profile", "repetition", "thread", "unit", "value")


class NotEvaluated(Error):
    """The data cannot decide a claim; the text is the displayed reason."""


class Data:
    """Tidy rows of one experiment on one fabric, with the queries of figures and deciders.

    Parameters
    ----------
    frame
        Tidy rows as of `pyrdma.load`: one column per parameter and label, then `COLUMNS`. The
        methods use only rows of the scope ``total``; `frame` also holds the rows of single nodes
        and threads. Seeds and repetitions of a point are equal in rank.
    """

    @checked
    def __init__(self, frame: pd.DataFrame) -> None:
        lacking = [name for name in _NEEDED if len(frame) and name not in frame.columns]
        if lacking:
            raise InvalidArgument(
                f"frame has no column {', '.join(lacking)}; give tidy rows as in results.parquet"
            )
        self._frame = frame
        self._read: set[int] | None = set()  # None: a caller took the whole table
        self.parameters = [str(c) for c in frame.columns if c not in COLUMNS]
        self.fabric: str = str(frame["fabric"].iloc[0]) if len(frame) else ""

    @property
    def frame(self) -> pd.DataFrame:
        """All rows."""
        self._read = None
        return self._frame

    def rows_read(self) -> frozenset[int] | None:
        """Return the rows that queries of this object returned; None if it gave `frame` away."""
        return None if self._read is None else frozenset(self._read)

    @checked
    def select(self, metric: str, **where: Any) -> pd.DataFrame:
        """Return the whole-point rows of `metric` that match; a list matches any of its values.

        Raises
        ------
        NotEvaluated
            No row matches: the metric or the values have not been measured.
        """
        rows = self._select(metric, where)
        if self._read is not None:
            self._read.update(rows.index)
        return rows

    def _select(self, metric: str, where: Mapping[str, Any]) -> pd.DataFrame:
        frame = self._frame
        if not len(frame):
            raise NotEvaluated("the results are empty")
        total = (frame["node"] == -1) & (frame["thread"] == -1)
        mask = total & (frame["metric"] == metric)
        if not mask.any():
            known = ", ".join(sorted(frame.loc[total, "metric"].unique()))
            raise NotEvaluated(f"metric {shown(metric)} was not measured; the metrics are {known}")
        for name, wanted in where.items():
            if name not in frame.columns:
                raise NotEvaluated(f"the results have no parameter {shown(name)}")
            values = wanted if isinstance(wanted, (list, tuple, set)) else [wanted]
            mask &= frame[name].isin(list(values))
        if not mask.any():
            asked = ", ".join(f"{k}={v}" for k, v in where.items())
            raise NotEvaluated(f"{metric} was not measured at {asked}")
        return frame[mask]

    @checked
    def value(self, metric: str, unit: str | None = None, **where: Any) -> float:
        """Return the median of `metric` over seeds and repetitions at exactly one point, in `unit`.

        Raises
        ------
        NotEvaluated
            No row matches, or more than one point does; the message names the parameter that
            distinguishes them.
        """
        rows = self.select(metric, **where)
        self._one_point(rows, metric, set(where))
        value = float(rows["value"].median())
        return value if unit is None else convert(value, str(rows["unit"].iloc[0]), unit)

    def _one_point(self, rows: pd.DataFrame, metric: str, chosen: set[str]) -> None:
        for name in [*self.parameters, "profile"]:
            if name not in chosen and rows[name].nunique(dropna=False) > 1:
                found = ", ".join(str(v) for v in rows[name].unique()[:5])
                raise NotEvaluated(
                    f"{metric} was measured at several values of {name}: {found}; choose one"
                )

    @checked
    def unit(self, metric: str) -> str:
        """Return the recorded unit of `metric`."""
        return str(self._select(metric, {})["unit"].iloc[0])

    @checked
    def series(self, metric: str, over: str, unit: str | None = None, **where: Any) -> pd.Series:
        """Return the median of `metric` for each value of the parameter `over`, ascending."""
        rows = self.select(metric, **where)
        if over not in rows.columns:
            raise NotEvaluated(f"the results have no parameter {shown(over)}")
        self._one_point(rows, metric, {*where, over})
        medians = rows.groupby(over)["value"].median().sort_index()
        if unit is not None:
            factor = convert(1.0, str(rows["unit"].iloc[0]), unit)
            medians = medians * factor
        return medians

    @checked
    def values_of(self, parameter: str) -> list[Any]:
        """Return the measured values of `parameter`, ascending."""
        if parameter not in self._frame.columns:
            return []
        return sorted(self._frame[parameter].dropna().unique().tolist())
