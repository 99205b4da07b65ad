"""The table of results: a pandas table with confidence intervals, which shows itself."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from .arguments import Between, checked, shown
from .data import COLUMNS
from .errors import InvalidArgument, nearest
from .files import read_regular
from .points import CONFIDENCE, median_interval, needed_values
from .units import convert, readable

__all__ = ["Table"]

Level = Annotated[float, Between(0.5, 0.999999)]

_APART = ("profile", "overrides", "fabric", "quick", "machine", "testbed", "host")
"""Columns whose values tell points apart, beside parameters and labels."""
_NEEDED = {"experiment", *_APART, "seed", "repetition", "scope", "metric", "value", "unit"}
_MOST_ROWS, _MOST_PICTURE = 60, 16 << 20
_CELL = "text-align:right;white-space:nowrap;padding:.1em .6em"


class Table(pd.DataFrame):  # type: ignore[misc] # pandas has no types
    """Measured numbers as tidy rows, from `pyrdma.run` or `pyrdma.load`.

    It is a pandas table with the columns that the README lists. Selections of rows are such tables,
    too.

    Attributes
    ----------
    figures
        The files of the figure that the run has drawn.
    timelines
        A line on each timeline that the run has recorded: its file, and its number of events.
    """

    _internal_names = [  # noqa: RUF012 - pandas reads it
        *pd.DataFrame._internal_names,
        "figures",
        "timelines",
    ]
    _internal_names_set = set(_internal_names)  # noqa: RUF012 - as above
    figures: Sequence[Path] = ()
    timelines: Sequence[str] = ()

    @property
    def _constructor(self) -> Any:
        return Table

    @checked
    def ci(
        self, metric: str | None = None, level: Level = CONFIDENCE, unit: str | None = None
    ) -> pd.DataFrame:
        """Return the median of `metric` at each point over seeds and repetitions, with an interval.

        The interval is of the median, from order statistics: its ends are measured values, chosen
        by the binomial distribution, and it covers the true median with a probability of at least
        `level`. It assumes that the values are independent and equally distributed, and nothing
        about the distribution. An interval of 95 % needs six values, one of 90 % five. `compare`
        and the repetitions of real-time points use the same method.

        Parameters
        ----------
        metric
            Name of a metric of the whole cluster; None: all of them, with a column ``metric``.
        level
            Least probability that the interval covers the true median.
        unit
            Unit of the returned numbers; the recorded one if None.

        Returns
        -------
        DataFrame
            A row for each point: its parameters and labels, those of ``experiment``, ``profile``,
            ``overrides``, ``fabric``, ``quick``, ``machine``, ``testbed`` and ``host`` that differ
            within the table, ``low``, ``median``, ``high``, ``mean``, ``values`` (their number)
            and ``unit``. ``low`` and ``high`` are NaN for points with too few values.

        Raises
        ------
        InvalidArgument
            The metric was not measured; columns of `pyrdma.run`'s table are missing; or a seed has
            several measurements, as with ``superseded=True``.

        Warns
        -----
        RuntimeWarning
            Some points have too few values for an interval of this level.
        """
        found = self.intervals(metric, level, unit)
        few = found[found["low"].isna()]
        if len(few):
            warnings.warn(
                f"{len(few)} of {len(found)} points have at most {few['values'].max()} "
                f"values, and an interval of {100 * level:g} % needs {needed_values(level)}: "
                "measure more seeds or repetitions, or give a lower level",
                RuntimeWarning,
                stacklevel=3,
            )
        return found

    def intervals(
        self, metric: str | None = None, level: float = CONFIDENCE, unit: str | None = None
    ) -> pd.DataFrame:
        """Return what `ci` returns, without its warning."""
        lacking = sorted(_NEEDED - set(self.columns))
        if lacking:
            raise InvalidArgument(
                f"the table has no column {', '.join(lacking)}; call ci() before columns are "
                "taken out"
            )
        rows = pd.DataFrame(self[self["scope"] == "total"])
        if metric is not None:
            known = sorted(rows["metric"].unique())
            rows = rows[rows["metric"] == metric]
            if not len(rows):
                raise InvalidArgument(
                    f"no metric {shown(metric)}{nearest(metric[:100], known)}; "
                    f"the metrics are {', '.join(known)}"
                )
        # In virtual time the machine does not matter.
        rows = rows.assign(machine=rows["machine"].where(rows["fabric"] != "sim", ""))
        labels = [c for c in rows if c not in COLUMNS and rows[c].notna().any()]
        differ = [c for c in ("experiment", *_APART) if rows[c].nunique() > 1]
        keys = [*labels, *differ, *(["metric"] if metric is None else []), "unit"]
        found = []
        for values, group in rows.groupby(keys, dropna=False, sort=False):
            if group.duplicated(["seed", "repetition"]).any():
                raise InvalidArgument(
                    "a seed and repetition of a point has several measurements; load without "
                    "superseded=True, or choose the rows of one `code`"
                )
            found.append(dict(zip(keys, values, strict=True)) | _interval(group["value"], level))
        table = pd.DataFrame(found)
        if unit is not None:
            factors = [convert(1.0, of, unit) for of in table["unit"]]
            for name in ("low", "median", "high", "mean"):
                table[name] *= factors
            table["unit"] = unit
        return table[[c for c in table if c != "unit"] + ["unit"]]

    def _repr_html_(self) -> str:
        """Return the points with their medians and intervals, and the figure, for a notebook."""
        try:
            parts = [_points(pd.DataFrame(part), name) for name, part in _by_place(self)]
        except (InvalidArgument, LookupError):  # a selection that is not of points
            parts = []
        if not parts:
            return str(super()._repr_html_())
        pictures = [p for p in self.figures if p.suffix == ".png"]
        return "\n".join([*parts, *map(_picture, pictures)])


def _by_place(table: Table) -> Iterator[tuple[str, Table]]:
    """Yield the rows of each experiment on each fabric, with a caption."""
    for (name, fabric), part in table.groupby(["experiment", "fabric"], sort=False):
        about = [f"{name} on {fabric}"]
        for column, word in (("profile", "profile "), ("overrides", ""), ("host", "host ")):
            values = [str(v) for v in part[column].unique() if v]
            if len(values) == 1 and (fabric == "sim" or column == "host"):
                about.append(word + values[0])
        for column in ("seed", "repetition"):
            count = part[column].nunique()
            about += [f"{count} {column}s"] if count > 1 else []
        yield ", ".join(about), part


def _interval(values: pd.Series, level: float) -> dict[str, Any]:
    low, high = median_interval(values, level) or (float("nan"), float("nan"))
    middle = {"low": low, "median": values.median(), "high": high, "mean": values.mean()}
    return middle | {"values": len(values)}


def _points(part: pd.DataFrame, caption: str) -> str:
    """Return a point per row, and a metric with its unit per column, as HTML."""
    found = Table(part).intervals()
    numbers = ("low", "median", "high", "mean", "values", "metric", "unit")
    keys = [c for c in found if c not in numbers]
    alike = [c for c in keys if found[c].nunique(dropna=False) == 1] if len(found) > 1 else []
    keys = [c for c in keys if c not in alike]
    heads, columns = [], []
    points = found[keys].drop_duplicates() if keys else found[["values"]].head(1)
    for (metric, unit), rows in found.groupby(["metric", "unit"], sort=False):
        scale = readable(float(rows["median"].abs().median()), str(unit))
        heads.append(f"{metric} ({scale})" if scale not in ("", "count") else str(metric))
        at = {tuple(str(row[key]) for key in keys): row for row in rows.to_dict("records")}
        columns.append((at, convert(1.0, str(unit), scale)))
    lines = []
    for point in points[keys].head(_MOST_ROWS).to_dict("records"):
        cells = ["" if v != v else escape(str(v)) for v in point.values()]
        place = tuple(map(str, point.values()))
        cells += [_cell(at.get(place), factor) for at, factor in columns]
        lines.append("".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells))
    head = "".join(f'<th style="{_CELL}">{escape(str(name))}</th>' for name in [*keys, *heads])
    if found["low"].notna().any():
        caption += f"; medians with intervals of {100 * CONFIDENCE:g} %"
    elif found["values"].max() > 1:
        caption += "; medians"
    if alike:
        caption += "; " + ", ".join(f"{c}={found[c].iloc[0]}" for c in alike)
    rest = len(points) - _MOST_ROWS
    return (
        f'<div style="overflow-x:auto"><p>{escape(caption)}</p><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
        f"{f'<p>and {rest} more points</p>' if rest > 0 else ''}</div>"
    )


def _cell(row: dict[str, Any] | None, factor: float) -> str:
    if row is None:
        return ""
    low, middle, high = (_number(row[name] * factor) for name in ("low", "median", "high"))
    return middle if row["low"] != row["low"] else f"{middle} <small>[{low}, {high}]</small>"


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _picture(path: Path) -> str:
    try:
        png = base64.b64encode(read_regular(path, _MOST_PICTURE)).decode()
    except (OSError, ValueError):
        return f"<p>{escape(str(path))} cannot be read; <code>pyrdma draw</code> makes it again</p>"
    return (
        f'<img src="data:image/png;base64,{png}" alt="{escape(path.stem)}" style="max-width:40em">'
    )
