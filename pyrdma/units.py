"""Units of measured values and of the papers' numbers, and conversion between them.

A measured value has its recorded unit (``ns``, ``op/s``, ``byte/s``). A claim has the paper's unit
(``us``, ``M req/s``, ``Gbps``). The claim's unit is used for the comparison.
"""

from __future__ import annotations

from .arguments import checked, shown
from .errors import InvalidArgument, nearest

__all__ = ["convert"]

# unit -> (dimension, factor to the dimension's base). All counts have one dimension, so that a rate
# in messages is comparable with one in requests: the claim's series says which is meant.
_UNITS: dict[str, tuple[str, float]] = {
    "ns": ("time", 1e-9),
    "us": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "min": ("time", 60.0),
    "op/s": ("rate", 1.0),
    "Kop/s": ("rate", 1e3),
    "KOp/s": ("rate", 1e3),
    "Mop/s": ("rate", 1e6),
    "M req/s": ("rate", 1e6),
    "req/s": ("rate", 1.0),
    "Mrps": ("rate", 1e6),
    "Mpps": ("rate", 1e6),
    "msg/s": ("rate", 1.0),
    "QP/s": ("rate", 1.0),
    "connections/s": ("rate", 1.0),
    "packets/s/node": ("rate", 1.0),
    "million GET/s": ("rate", 1e6),
    "byte/s": ("bandwidth", 1.0),
    "B/s": ("bandwidth", 1.0),
    "KB/s": ("bandwidth", 1e3),
    "MB/s": ("bandwidth", 1e6),
    "GB/s": ("bandwidth", 1e9),
    "Mbps": ("bandwidth", 0.125e6),
    "Gbps": ("bandwidth", 0.125e9),
    "B": ("size", 1.0),
    "byte": ("size", 1.0),
    "kB": ("size", 1e3),
    "KB": ("size", 1e3),
    "MB": ("size", 1e6),
    "GB": ("size", 1e9),
    "KiB": ("size", 1024.0),
    "MiB": ("size", 1024.0**2),
    "us/B": ("time/size", 1e-6),
    "ns/B": ("time/size", 1e-9),
    "x": ("number", 1.0),
    "": ("number", 1.0),
    "none": ("number", 1.0),
    "fraction": ("number", 1.0),
    "probability": ("number", 1.0),
    "percent": ("number", 0.01),
    "%": ("number", 0.01),
    "qualitative": ("number", 1.0),
    "count": ("number", 1.0),
    "million": ("number", 1e6),
    "flows": ("number", 1.0),
    "threads": ("number", 1.0),
    "clients": ("number", 1.0),
    "nodes": ("number", 1.0),
    "cores": ("number", 1.0),
    "cores per machine": ("number", 1.0),
    "messages": ("number", 1.0),
    "messages per delay": ("number", 1.0),
    "objects": ("number", 1.0),
    "rounds": ("number", 1.0),
    "slots": ("number", 1.0),
    "locks": ("number", 1.0),
    "RTT": ("number", 1.0),
}


def base(value: float, unit: str) -> float:
    """Return `value` in the base unit of its dimension; unchanged if the unit is unknown."""
    return value * _UNITS[unit][1] if unit in _UNITS else value


_SHOWN = (
    ("ns", "us", "ms", "s"),
    ("op/s", "Kop/s", "Mop/s"),
    ("byte/s", "KB/s", "MB/s", "GB/s"),
    ("B", "KB", "MB", "GB"),
)
"""Units that readers know, ascending."""


def readable(value: float, unit: str) -> str:
    """Return the unit in which a value has few digits; `unit` if no other is usual for it."""
    units = next((row for row in _SHOWN if unit in row), (unit,))
    fitting = [u for u in units if abs(convert(value, unit, u)) >= 1]
    return fitting[-1] if fitting else unit


@checked
def convert(value: float, unit: str, to: str) -> float:
    """Convert `value` from `unit` to the unit `to`.

    Raises
    ------
    InvalidArgument
        A unit is unknown, or the two units have different dimensions.
    """
    if unit == to:
        return value
    for parameter, name in (("unit", unit), ("to", to)):
        if name not in _UNITS:
            hint = nearest(name[:100], _UNITS)
            raise InvalidArgument(f"{parameter} is {shown(name)}, an unknown unit{hint}")
    dimension, factor = _UNITS[unit]
    target, target_factor = _UNITS[to]
    if dimension != target:
        raise InvalidArgument(
            f"cannot convert {value:g} {unit} ({dimension}) to {to} ({target}); "
            "record the metric in a unit of the same dimension"
        )
    return value * factor / target_factor


def digits(value: float) -> str:
    """Return a number in as few digits as tell it from others."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
