"""The table of ``pyrdma bench``, as JSON and as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from .benchmark import Row

__all__ = ["as_json", "as_table"]

_FIELDS = ("name", "value", "unit", "peer", "peer_value", "ratio")


def _significant(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def as_json(rows: Sequence[Row]) -> str:
    """Return the array of ``{name, value, unit, peer, peer_value, ratio}``."""
    objects = []
    for row in rows:
        fields = asdict(row)
        for key in ("value", "peer_value", "ratio"):
            fields[key] = _significant(fields[key])
        objects.append({key: fields[key] for key in _FIELDS})
    return json.dumps(objects, indent=2, allow_nan=False)


def _readable(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    for factor, prefix in ((1e6, "M"), (1e3, "k")):
        if "op/s" in unit and value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def as_table(rows: Sequence[Row]) -> Table:
    """Return the rows as a table; a ratio above 1 means that pyrdma is better."""
    table = Table(title="Speed beside peers", caption="ratio above 1: pyrdma is better")
    table.add_column("benchmark", overflow="fold")
    for column in ("ours", "peer's", "ratio"):
        table.add_column(column, justify="right")
    table.add_column("peer")
    for row in rows:
        number = "-" if row.ratio is None else f"{row.ratio:.2f}"
        style = None if row.ratio is None or row.ratio >= 1 else "bold"
        table.add_row(
            row.name,
            _readable(row.value, row.unit),
            _readable(row.peer_value, row.unit),
            number,
            row.peer or "-",
            style=style,
        )
    return table
