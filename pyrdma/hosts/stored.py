"""The results that a run has left on a host, read by a driver; see ``playbooks/run.yml``."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from pyrdma.errors import Error, InvalidArgument
from pyrdma.files import read_regular

__all__ = ["FOLDER", "NAME", "PIECE", "listed", "piece"]

FOLDER = Path("/var/lib/pyrdma/results")
"""Where the driver of ``run.yml`` stores, on the first host."""

NAME = re.compile(r"(?:[\w@+,=-][\w@.+,=-]*/){1,8}[\w@+,=-][\w@.+,=-]*\.(?:jsonl|json|parquet)")
"""Name of a file of results, relative to their folder; no part begins with a dot."""

PIECE = 512 << 10
"""Most bytes of a piece."""

_MOST_FILES = 4000
_MOST_BYTES = 256 << 20


def listed(after: str) -> dict[str, Any]:
    """Return names, sizes and SHA-256 of the files that follow `after` in order, or some of them.

    The list is empty at the end.
    """
    found = []
    if FOLDER.is_dir():
        names = sorted(p.relative_to(FOLDER).as_posix() for p in FOLDER.rglob("*") if p.is_file())
        for name in names:
            if name <= after or not NAME.fullmatch(name):
                continue
            content = _content(name)
            found.append([name, len(content), hashlib.sha256(content).hexdigest()])
            if len(found) == _MOST_FILES:
                break
    return {"files": found}


def piece(name: str, offset: int) -> str:
    """Return a piece of a file as base64, from `offset` on; empty at its end."""
    path = _checked(name)
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return base64.b64encode(file.read(PIECE)).decode()
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror}") from None


def _checked(name: str) -> Path:
    """Return the path of a file of results; no part of it leads elsewhere."""
    path = FOLDER / name
    if not NAME.fullmatch(name) or path.resolve() != FOLDER.resolve() / name:
        raise InvalidArgument(f"{name!r} is no file of results")
    return path


def _content(name: str) -> bytes:
    try:
        return read_regular(_checked(name), _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise Error(f"{FOLDER / name} cannot be read: {error}") from None
