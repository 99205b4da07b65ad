"""The results that a run has left on a host, read by a driver; see ``playbooks/run.yml``."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyrdma.errors import Error, InvalidArgument
from pyrdma.files import digest_of

__all__ = ["FOLDER", "NAME", "PIECE", "listed", "piece"]

FOLDER = Path("/var/lib/pyrdma/results")
"""Where the driver of ``run.yml`` stores, on the first host."""

NAME = re.compile(r"(?:[\w@+,=-][\w@.+,=-]*/){1,8}[\w@+,=-][\w@.+,=-]*\.(?:jsonl|json|parquet)")
"""Name of a file of results, relative to their folder; no part begins with a dot."""

PIECE = 512 << 10
"""Most bytes of a piece."""

_MOST_FILES = 4000
_MOST_BYTES = 256 << 20
_MOST_NAMES = 256 << 10
"""Most characters of all names in a list, which fits a message."""
_LIST_S = 5.0
"""A list ends with the first file that ends later; one of 256 MiB takes some seconds more."""


def listed(after: str) -> dict[str, Any]:
    """Return names, sizes and SHA-256 of the files that follow `after` in order, or some of them.

    The list is empty at the end. A list takes seconds, so a folder of any size needs several.
    """
    found: list[list[Any]] = []
    deadline = time.monotonic() + _LIST_S
    characters = 0
    for name in _names(FOLDER, "", after):
        try:
            size, digest = digest_of(_checked(name), _MOST_BYTES)
        except FileNotFoundError:  # a run has set it aside since
            continue
        except (OSError, ValueError) as error:
            raise Error(f"{FOLDER / name} cannot be read: {error}") from None
        found.append([name, size, digest])
        characters += len(name)
        is_full = len(found) == _MOST_FILES or characters > _MOST_NAMES
        if is_full or time.monotonic() > deadline:
            break
    return {"files": found}


def _names(folder: Path, prefix: str, after: str) -> Iterator[str]:
    """Yield the names of results below a folder that follow `after`, in the order of texts.

    A folder counts as its name with a slash, so that its files come in this order among others. It
    is read when it has its turn, and not if all its files come before or are no results.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                prefix + entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in entries
                if not entry.is_symlink()
            )
    except FileNotFoundError:
        return
    except OSError as error:
        raise Error(f"{folder} cannot be read: {error.strerror}") from None
    for name in names:
        if name.endswith("/"):
            if NAME.fullmatch(f"{name}x.json") and (name > after or after.startswith(name)):
                yield from _names(FOLDER / name, name, after)
        elif name > after and NAME.fullmatch(name):
            yield name


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
