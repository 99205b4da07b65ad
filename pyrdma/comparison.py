"""Two results folders side by side: exact in virtual time, ratios of medians in real time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
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

_HOST = ("testbed", "host")
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
    several testbeds, several hosts that measured apart, or several machines, each is compared with
    itself; otherwise their names do not count, so that two testbeds can be compared. The interval
    of the ratio covers the ratio of the true medians with at least 95 %: it follows from the order
    statistics of both sides and assumes no distribution. It needs seven values on each side.

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
    apart = {fabric: _apart(found, fabric) for fabric in FABRICS}
    sides = [_grouped(side, apart) for side in found]
    common = [key for key in sides[0] if key in sides[1]]
    if not common:
        machines = any("machine" in names for names in apart.values())
        why = "; one of them has several machines, and each is compared with itself alone"
        raise InvalidArgument(
            f"{a} and {b} have no measured point in common; compare the same runs"
            f"{why if machines else ''}"
        )
    rows = [{**dict(key), **_row(dict(key), sides[0][key], sides[1][key])} for key in common]
    rows.sort(key=lambda row: (row["differs"], _change(row)), reverse=True)
    frame = pd.DataFrame(rows)
    only_a, only_b = (len(sides[i]) - len(common) for i in (0, 1))
    frame.attrs.update(only_a=only_a, only_b=only_b)
    return frame


def _apart(sides: Sequence[Sequence[Measurement]], fabric: str) -> tuple[str, ...]:
    """Return the fields that tell points of a fabric apart, since a folder has several values.

    Those of testbeds, and of hosts that measured apart, do; and machines of the same testbed or
    host.
    """
    fields: list[str] = []
    for side in sides:
        ours = [m for m in side if m.identity["fabric"] == fabric]
        hosts = {tuple(_of(m, _HOST).values()) for m in ours}
        machines = {tuple(_of(m, (*_HOST, "machine")).values()) for m in ours}
        fields += _HOST if len(hosts) > 1 else ()
        fields += ["machine"] if len(machines) > len(hosts) else []
    return tuple(dict.fromkeys(fields))


def _of(m: Measurement, names: Sequence[str]) -> dict[str, str]:
    return {name: m.identity.get(name, "") for name in names}


def _grouped(
    measurements: Sequence[Measurement], apart: Mapping[str, Sequence[str]]
) -> dict[_Key, _Group]:
    """Return the values of every metric of every point, of the whole cluster.

    The fields `apart` of a fabric tell its points apart, too.
    """
    found: dict[_Key, _Group] = {}
    for m in measurements:
        point = {
            "experiment": m.identity["experiment"],
            **m.identity["params"],
            **{name: m.identity[name] for name in ("profile", "fabric", "quick")},
            "overrides": overrides_text(m.identity["overrides"]),
        }
        if m.identity["fabric"] == "sim":
            point |= {name: m.identity[name] for name in ("seed", "repetition")}
        point |= _of(m, apart[m.identity["fabric"]])
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
