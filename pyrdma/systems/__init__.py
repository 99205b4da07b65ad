"""The systems. Each is a package here; users import it as `pyrdma.NAME`.

The package of a system holds

- its public names, in ``__init__.py``: channels, servers, clients for scripts;
- ``workloads.py``: its workload classes, which `pyrdma.workload` shows too. They are generated from
  the native tables into ``generated.py``;
- ``benchmarks.py`` with ``benchmarks()``: its rows of ``pyrdma bench``.

Its native part lies in ``native/systems/NAME``, its experiments in ``experiments/NAME``. The list
of the systems is `NAMES`, here, and `native/systems/list.h`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import loco as loco
    from .loco.workloads import *  # noqa: F403

NAMES = ("loco",)


def parts(part: str) -> list[ModuleType]:
    """Return the module `part` of every system: ``workloads`` or ``benchmarks``."""
    return [importlib.import_module(f"{__name__}.{name}.{part}") for name in NAMES]
