"""The digest of the sources that a process runs; hosts and workers must have it in common."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from ._native import native

__all__ = ["source_digest"]

_FOLDER = Path(__file__).parent


@cache
def source_digest() -> str:
    """Return a digest of the whole package, which hosts of a cluster must have in common.

    It covers the native sources of the loaded module and the package's Python files, without the
    playbooks, and without the experiments, which have digests of their own. It costs some
    milliseconds, once in a process.

    Raises
    ------
    Unavailable
        The native module cannot be loaded.
    """
    core: Any = native()
    lines = [str(core.source_digest)]
    for path in sorted(_FOLDER.rglob("*.py")):
        name = path.relative_to(_FOLDER).as_posix()
        if not name.startswith(("experiments/", "playbooks/")):
            lines.append(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
