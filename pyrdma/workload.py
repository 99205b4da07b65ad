"""Workloads: the work of each node of a cluster, as data; the loops are native.

Every field is a parameter of the native workload of the same name. The native side checks it when
the object is made; the error names key, value and bound. A field that is left out takes the native
default. The classes are
generated from the native tables of parameters. The classes of a system are in its package too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _workload_classes, systems
from ._workload import Parameters
from ._workload import Workload as Workload
from ._workload_classes import *  # noqa: F403
from .arguments import Duration, checked, shown
from .errors import InvalidArgument

if TYPE_CHECKING:
    from .systems import *  # noqa: F403


@dataclass(frozen=True)
class Custom(Workload):
    """Your own workload, from a shared library built against the installed headers.

    Parameters
    ----------
    library
        ``path.so:name``.
    settings
        Parameters of the workload.
    """

    library: str
    settings: Parameters = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if ".so:" not in self.library:
            raise InvalidArgument(f"library is {shown(self.library)}; give path.so:name")

    @property
    def name(self) -> str:
        """The library and the name in it."""
        return self.library

    @checked
    def parameters(self, duration_s: Duration | None = None) -> Parameters:
        """Return `settings`, with the duration if one is given."""
        values = dict(self.settings)
        if duration_s is not None:
            values["duration_ns"] = round(duration_s * 1e9)
        return values


_of_systems = {
    name: kind
    for module in systems.parts("workloads")
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Workload)
}
globals().update(_of_systems)
# A literal would hide the systems' classes from type checkers.
globals()["__all__"] = sorted({"Custom", "Workload", *_workload_classes.__all__, *_of_systems})
