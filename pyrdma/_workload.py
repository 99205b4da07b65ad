"""The base class of workloads: a name from the native table, and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, cast

from ._native import native
from .arguments import Duration, check, checked, kinds_of
from .errors import Error
from .result import Result, Value

__all__ = ["DEFAULT", "Parameters", "Workload", "allowed", "in_effect", "shown_number", "table_of"]

Parameters = dict[str, Value | list[int]]


@cache
def table_of(name: str) -> Sequence[Mapping[str, Any]]:
    """Return the parameters of a native workload: name, default, unit, bounds, choices, meaning."""
    core: Any = native()
    return core.measure.workload_parameters(name)  # type: ignore[no-any-return]


def in_effect(name: str, given: Parameters) -> Parameters:
    """Return the parameters of a run of the workload `name`: those given, and the defaults.

    A parameter that only another ``system`` of the workload reads is left out. Of a workload in a
    shared library that cannot be loaded here, the given ones are returned.
    """
    try:
        table = table_of(name)
    except Error:  # the library lies on the hosts
        return dict(given)
    values: Parameters = {}
    for row in table:
        value = given.get(row["name"], row["default"])
        if row["unit"] == "bool":
            value = bool(value)
        elif isinstance(row["default"], float):
            value = float(cast(float, value))
        values[row["name"]] = value
    system = values.get("system")
    return {r["name"]: values[r["name"]] for r in table if r["system"] in ("", system)}


def allowed(row: Mapping[str, Any]) -> str:
    """Return what a parameter of a native table takes: bounds, choices, or a kind of value."""
    if row["choices"]:
        return ", ".join(row["choices"])
    if row["unit"] == "bool":
        return "False, True"
    if isinstance(row["default"], str):
        return "text"
    low, high = shown_number(row["min"]), shown_number(row["max"])
    return f"at least {low}" if row["max"] >= 1e9 else f"{low} to {high}"


def shown_number(value: float) -> str:
    """Return a number with commas between thousands."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


class _Default:
    """The value of a field that was left out; there is one object of this class."""

    def __repr__(self) -> str:
        return "DEFAULT"

    def __reduce__(self) -> str:
        return "DEFAULT"


DEFAULT: Any = _Default()
"""The default of a workload's fields: the native side fills in its own."""


@dataclass(frozen=True)
class Workload:
    """A named native workload with its parameters; a field that is left out takes the default.

    Raises
    ------
    InvalidArgument
        A field is wrong: key, value and bound are named.
    """

    native: ClassVar[str] = ""
    survives: ClassVar[bool] = False
    """Whether the workload continues when a script kills nodes during the run."""

    def __post_init__(self) -> None:
        """Check the fields against their types, then against the native table."""
        given = self._given()
        kinds = kinds_of(cast(Any, type(self)))
        for name, value in given.items():
            check(name, value, kinds[name])
        if self.native:
            core: Any = native()
            core.measure.check_parameters(self.native, given)

    def _given(self) -> Parameters:
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in values if value is not DEFAULT}

    def _ended(self, result: Result) -> None:
        """Take note of a run's result; a workload that stands for an object tells it."""

    @property
    def name(self) -> str:
        """Name of the workload in the native table."""
        return self.native

    @checked
    def parameters(self, duration_s: Duration | None = None) -> Parameters:
        """Return the parameters in the form of the native workload.

        A run with a duration ends by time. A run with ``iterations`` alone ends by their number.
        """
        values = self._given()
        counted = any(f.name == "iterations" for f in fields(self))
        if duration_s is not None:
            values["duration_ns"] = round(duration_s * 1e9)
            if counted:
                values.setdefault("iterations", 0)
        elif "iterations" in values:
            values["duration_ns"] = 0
        return {
            name: int(value) if isinstance(value, bool) else value for name, value in values.items()
        }
