"""The extras of this package: which module is in which, and how to install one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

__all__ = ["CONTROLLER", "install_extra", "lacking_extra", "pip_install"]

CONTROLLER = ("pandas", "pyarrow", "matplotlib", "hdrh", "jinja2", "PIL")
"""Modules of the extra `controller`."""


def pip_install(*words: str) -> str:
    """Return the command that installs packages into this environment."""
    managed = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").is_file()
    if managed and sys.prefix == sys.base_prefix:  # where this package is already
        words = ("--break-system-packages", *words)
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *words])
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def install_extra(extra: str) -> str:
    """Return the command that installs the packages of an extra of this package."""
    wanted = []
    for row in importlib.metadata.requires("pyrdma") or []:
        requirement, _, marker = row.partition(";")
        found = re.fullmatch(rf"""(.*?)(?:\s+and\s+)?extra == ['"]{extra}['"]""", marker.strip())
        if found:
            wanted.append("; ".join(filter(None, (requirement.strip(), found[1]))))
    return pip_install(*wanted)


def lacking_extra(module: str | None) -> str:
    """Return which extra has a missing module, and how to install it; empty if none has it."""
    if module is None or module.split(".")[0] not in CONTROLLER:
        return ""
    return (
        f"the module {module} is missing, which pyrdma's extra `controller` has; install the "
        f"extra with: {install_extra('controller')}"
    )
