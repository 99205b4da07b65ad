"""Two results folders side by side: ratios of medians, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .arguments import FilePath, checked
from .errors import InvalidArgument
from .results import newest, overrides_text, stored_in
from .store import Measurement
from .sweep import median_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare"]

_CONFIDENCE = 0.975
"""Confidence of each median's interval. The ratio of the two then has at least 95 %."""

_Key = tuple[tuple[str, Any], ...]


@checked
def compare(a: FilePath, b: FilePath) -> pd.DataFrame:
    """Compare the numbers of the whole cluster in two results folders.

    Seeds and repetitions of a point count as its values. The interval of the ratio covers the
    ratio of the true medians with at least 95 %: it follows from the order statistics of both
    sides and assumes no distribution. It needs seven values on each side.

    Parameters
    ----------
    a, b
        Results folders, or parts of them; see `pyrdma.load`.

    Returns
    -------
    DataFrame
        A row for each metric of each point that both folders have, largest change first: the
        point's parameters, ``metric``, ``unit``, the medians ``a`` and ``b``, ``ratio`` (b / a; NaN
        where a is zero), ``low`` and ``high`` of its interval (NaN with fewer than seven values),
        ``values_a``, ``values_b`` (their numbers), and ``differs``: whether the interval excludes
        1; without an interval, whether the medians differ. ``attrs["only_a"]`` and
        ``attrs["only_b"]`` count the rows that one folder lacks.

    Raises
    ------
    InvalidArgument
        A folder does not exist or holds no measurement, or they have no point in common.
    """
    import pandas as pd

    folders = {"a": a, "b": b}
    sides = [_grouped(newest(stored_in(f, name))) for name, f in folders.items()]
    common = [key for key in sides[0] if key in sides[1]]
    if not common:
        raise InvalidArgument(
            f"{a} and {b} have no measured point in common; compare the same runs"
        )
    rows = [{**dict(key), **difference(sides[0][key], sides[1][key])} for key in common]
    frame = pd.DataFrame(rows)
    size = (frame["ratio"] - 1).abs().fillna(float("inf"))
    frame = frame.loc[size.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
    only_a, only_b = (len(sides[i]) - len(common) for i in (0, 1))
    frame.attrs.update(only_a=only_a, only_b=only_b)
    return frame


def _grouped(measurements: Sequence[Measurement]) -> dict[_Key, list[float]]:
    """Return the values of every metric of every point, of the whole cluster."""
    found: dict[_Key, list[float]] = {}
    for m in measurements:
        point = {
            "experiment": m.identity["experiment"],
            **m.identity["params"],
            **{name: m.identity[name] for name in ("profile", "fabric", "quick")},
            "overrides": overrides_text(m.identity["overrides"]),
        }
        for row in m.rows:
            key = tuple({**point, **row.labels, "metric": row.metric, "unit": row.unit}.items())
            found.setdefault(key, []).append(row.value)
    return found


def difference(a: list[float], b: list[float]) -> dict[str, Any]:
    """Return medians, ratio, its interval, and whether `a` and `b` differ; see `compare`."""
    from statistics import median

    middle_a, middle_b = median(a), median(b)
    low = high = float("nan")
    of_a, of_b = median_interval(a, _CONFIDENCE), median_interval(b, _CONFIDENCE)
    if of_a and of_b and of_a[0] > 0 and of_b[0] >= 0:
        low, high = of_b[0] / of_a[1], of_b[1] / of_a[0]
    known = low == low
    return {
        "a": middle_a,
        "b": middle_b,
        "ratio": middle_b / middle_a if middle_a else float("nan"),
        "low": low,
        "high": high,
        "values_a": len(a),
        "values_b": len(b),
        "differs": not low <= 1 <= high if known else middle_a != middle_b,
    }
