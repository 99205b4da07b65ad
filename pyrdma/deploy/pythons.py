"""The Pythons of this machine that pyrdma supports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pyrdma.errors import InvalidArgument

__all__ = ["VARIABLE", "VERSIONS", "find"]

VERSIONS = ("3.10", "3.11", "3.12", "3.13")
"""The versions that wheels are built for."""

VARIABLE = "PYRDMA_PYTHONS"
"""The environment variable that names interpreters, separated by colons; they are taken first."""


@cache
def find() -> dict[str, Path]:
    """Return an interpreter for each version of `VERSIONS` that this machine has.

    It looks at ``$PYRDMA_PYTHONS``, this process's Python, the path, and the folder of pyenv. Each
    found program is run once.

    Raises
    ------
    InvalidArgument
        ``$PYRDMA_PYTHONS`` names a program that is no Python of these versions.
    """
    found: dict[str, Path] = {}
    for named in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        version = _version(Path(named))
        if version not in VERSIONS:
            raise InvalidArgument(
                f"{VARIABLE} names {named!r}, which is no CPython {VERSIONS[0]} to {VERSIONS[-1]}; "
                "give paths of interpreters, separated by colons"
            )
        found.setdefault(version, Path(named).absolute())
    for version in VERSIONS:
        usable = (path for path in _places(version) if _version(path) == version)
        path = found.get(version) or next(usable, None)
        if path is not None:
            found[version] = path
    return dict(sorted(found.items(), key=lambda item: VERSIONS.index(item[0])))


def _places(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)


@cache
def _version(path: Path) -> str:
    """Return the version of an interpreter, as ``3.11``; an empty text if it is no CPython."""
    script = "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    name, _, version = done.stdout.strip().partition(" ")
    return version if name == "cpython" else ""
