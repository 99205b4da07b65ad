"""The base class of workloads: a name from the native table, and parameters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from .errors import InvalidArgument
from .result import Value

__all__ = ["Parameters", "Workload"]

Parameters = dict[str, Value | list[int]]


@dataclass(frozen=True)
class Workload:
    """A named native workload with its parameters; a field that is None takes the default."""

    native: ClassVar[str] = ""
    survives: ClassVar[bool] = False
    """Whether the workload continues when a script kills nodes during the run."""

    @property
    def name(self) -> str:
        """Name of the workload in the native table."""
        return self.native

    def parameters(self, duration_s: float | None = None) -> Parameters:
        """Return the parameters in the form of the native workload.

        A run with a duration ends by time. A run with ``iterations`` alone ends by their number.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        counted = "iterations" in values
        if duration_s is not None:
            if not duration_s > 0:
                raise InvalidArgument(f"duration_s is {duration_s}; it must be above 0")
            values["duration_ns"] = round(duration_s * 1e9)
            if counted and values["iterations"] is None:
                values["iterations"] = 0
        elif counted and values["iterations"] is not None:
            values["duration_ns"] = 0
        return {
            name: int(value) if isinstance(value, bool) else value
            for name, value in values.items()
            if value is not None
        }
