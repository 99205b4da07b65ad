"""Two results folders side by side: exact in virtual time, ratios of medians in real time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .arguments import FilePath, checked
from .errors import InvalidArgument
from .fabrics import FABRICS
from .points import median_interval
from .results import newest, overrides_text, stored_in
from .store import Measurement

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare"]

_CONFIDENCE = 0.975
"""Confidence of each median's interval. The ratio of the two then has at least 95 %."""

_Key = tuple[tuple[str, Any], ...]
_Group = list[tuple[float, str]]
"""The values of a row, each with the bits that decide whether two of them are equal."""


@checked
def compare(a: FilePath, b: FilePath) -> pd.DataFrame:
    """Compare the numbers of the whole cluster in two results folders.

    On ``sim`` equal seeds must give equal numbers. Each seed has a row of its own there, which is
    compared bit by bit, and no interval. Two more kinds of rows stand for the other numbers of a
    point: ``node_numbers`` for those of nodes and threads, and ``<operation>_latencies`` for a
    histogram; ``a`` and ``b`` are then their count.

    On the other fabrics, seeds and repetitions of a point count as its values. Where a folder has
    several testbeds, or several hosts that measured apart, each is compared with itself, and so is
    each of several machines that measured one point; otherwise their names do not count, so that
    two testbeds can be compared. The interval of the ratio covers the ratio of the true medians
    with at least 95 %: it follows from the order statistics of both sides and assumes no
    distribution. It needs seven values on each side.

    Parameters
    ----------
    a, b
        Results folders, or parts of them; see `pyrdma.load`.

    Returns
    -------
    DataFrame
        A row for each metric of each point that both folders have, those that differ first, largest
        change first: the point's parameters, on ``sim`` its ``seed``, ``metric``, ``unit``, the
        medians ``a`` and ``b`` (on ``sim`` the numbers), ``ratio`` (b / a; NaN where a is zero),
        ``low`` and ``high`` of its interval (NaN with fewer than seven values), ``values_a``,
        ``values_b`` (their numbers), and ``differs``: on ``sim`` whether any bit does, elsewhere
        whether the interval excludes 1, or without an interval, whether the medians differ.
        ``attrs["only_a"]`` and ``attrs["only_b"]`` count the rows that one folder lacks.

    Raises
    ------
    InvalidArgument
        A folder does not exist or holds no measurement, or they have no point in common.
    """
    import pandas as pd

    folders = {"a": a, "b": b}
    found = [newest(stored_in(f, name)) for name, f in folders.items()]
    apart = [fabric for fabric in FABRICS if any(_hosts(side, fabric) > 1 for side in found)]
    several = {key for side in found for key in _of_several_machines(side, apart)}
    sides = [_grouped(side, apart, several) for side in found]
    common = [key for key in sides[0] if key in sides[1]]
    if not common:
        why = "; several machines measured a point, and each is compared with itself alone"
        raise InvalidArgument(
            f"{a} and {b} have no measured point in common; compare the same runs"
            f"{why if several else ''}"
        )
    rows = [{**dict(key), **_row(dict(key), sides[0][key], sides[1][key])} for key in common]
    rows.sort(key=lambda row: (row["differs"], _change(row)), reverse=True)
    frame = pd.DataFrame(rows)
    only_a, only_b = (len(sides[i]) - len(common) for i in (0, 1))
    frame.attrs.update(only_a=only_a, only_b=only_b)
    return frame


def _hosts(measurements: Sequence[Measurement], fabric: str) -> int:
    """Return how many testbeds, or hosts that measured apart, have points on a fabric."""
    ours = [m for m in measurements if m.identity["fabric"] == fabric]
    return len({tuple(_host(m).items()) for m in ours})


def _host(m: Measurement) -> dict[str, str]:
    return {name: m.identity.get(name, "") for name in ("testbed", "host")}


def _point(m: Measurement, apart: Sequence[str]) -> dict[str, Any]:
    """Return what tells a point apart; on the fabrics in `apart` its testbed and its host do."""
    point = {
        "experiment": m.identity["experiment"],
        **m.identity["params"],
        **{name: m.identity[name] for name in ("profile", "fabric", "quick")},
        "overrides": overrides_text(m.identity["overrides"]),
    }
    if m.identity["fabric"] == "sim":
        point |= {name: m.identity[name] for name in ("seed", "repetition")}
    return point | (_host(m) if m.identity["fabric"] in apart else {})


def _of_several_machines(side: Sequence[Measurement], apart: Sequence[str]) -> set[_Key]:
    """Return the points that several machines measured."""
    machines: dict[_Key, set[str]] = {}
    for m in side:
        machines.setdefault(tuple(_point(m, apart).items()), set()).add(m.identity["machine"])
    return {key for key, found in machines.items() if len(found) > 1}


def _grouped(
    measurements: Sequence[Measurement], apart: Sequence[str], several: Collection[_Key]
) -> dict[_Key, _Group]:
    """Return the values of every metric of every point, of the whole cluster.

    Each machine has a point of its own where one of the folders has `several`.
    """
    found: dict[_Key, _Group] = {}
    for m in measurements:
        point = _point(m, apart)
        if tuple(point.items()) in several:
            point["machine"] = m.identity["machine"]
        for labels, value in _numbers(m):
            found.setdefault(tuple({**point, **labels}.items()), []).append(value)
    return found


def _numbers(m: Measurement) -> Iterator[tuple[dict[str, Any], tuple[float, str]]]:
    """Yield the rows of a measurement: labels with metric and unit, and a value with its bits."""
    for row in m.rows:
        about = {**row.labels, "metric": row.metric, "unit": row.unit}
        yield about, (row.value, float(row.value).hex())
    if m.identity["fabric"] != "sim":
        return
    if m.samples:
        # A file may hold 1 where another has 1.0, which is the same number.
        text = repr(sorted((s.node, s.thread, s.metric, s.unit, float(s.value)) for s in m.samples))
        digest = hashlib.sha256(text.encode()).hexdigest()
        yield {"metric": "node_numbers", "unit": "count"}, (len(m.samples), digest)
    for operation, payloads in m.histograms.items():
        digest = hashlib.sha256(b"\0".join(sorted(payloads))).hexdigest()
        yield {"metric": f"{operation}_latencies", "unit": "count"}, (len(payloads), digest)


def _row(point: dict[str, Any], a: _Group, b: _Group) -> dict[str, Any]:
    found = difference([value for value, _ in a], [value for value, _ in b])
    if point["fabric"] == "sim":
        found["differs"] = [bits for _, bits in a] != [bits for _, bits in b]
    return found


def _change(row: Mapping[str, Any]) -> float:
    return math.inf if math.isnan(row["ratio"]) else abs(row["ratio"] - 1)


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
