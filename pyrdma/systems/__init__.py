"""The systems. Each is a package here; users import it as `pyrdma.NAME`.

The package of a system holds

- its public names, in ``__init__.py``: channels, servers, clients for scripts;
- ``workloads.py``: its workload classes, which `pyrdma.workload` shows too. They are generated from
  the native tables into ``generated.py``;
- ``benchmarks.py`` with ``benchmarks()``: its rows of ``pyrdma bench``;
- ``scopes.py`` with ``CALIBRATIONS``: the workloads that pass through each of its steps.
- ``validations.py`` with ``validations()``: its entries of ``pyrdma validate``.

Its native part lies in ``native/systems/NAME``, its experiments in ``experiments/NAME``. The list
of the systems is `NAMES`, here, and `native/systems/list.h`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # isort: off
    from . import loco as loco
    from .loco.workloads import *  # noqa: F403
    from . import erpc as erpc
    from .erpc.workloads import *  # noqa: F403
    from . import spindle as spindle
    from .spindle.workloads import *  # noqa: F403
    from . import tailwind as tailwind
    from .tailwind.workloads import *  # noqa: F403
    from . import krcore as krcore
    from .krcore.workloads import *  # noqa: F403
    # A new system is two more lines above this one.

NAMES = (
    "loco",
    "erpc",
    "spindle",
    "tailwind",
    "krcore",
    # A new system is one more line above this one.
)


def part(system: str, name: str) -> ModuleType:
    """Return a module of a system's package: ``workloads``, ``benchmarks`` or ``scopes``."""
    return importlib.import_module(f"{__name__}.{system}.{name}")


def parts(name: str) -> list[ModuleType]:
    """Return the module `name` of every system."""
    return [part(system, name) for system in NAMES]


class _PublicNames(MetaPathFinder, Loader):
    """Makes ``import pyrdma.NAME`` import the system's package, which stays one module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        package, _, name = fullname.rpartition(".")
        known = package == __name__.rpartition(".")[0] and name in NAMES
        return ModuleSpec(fullname, self) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{__name__}.{spec.name.rpartition('.')[2]}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has replaced the package's own description, which reloading needs.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.append(_PublicNames())
