"""Unpacks wheels into one folder, as pip does, without running anything of them.

A wheel comes from outside: its names lead nowhere else, and its size has bounds.
"""

from __future__ import annotations

import shutil
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from pyrdma.errors import Error

__all__ = ["unpack"]

MOST_FILES = 50_000
MOST_BYTES = 1 << 30
"""Bounds of all wheels together; NumPy, the largest, has 1,000 files and 60 MB."""

_LEFT_OUT = ("pyrdma/include/", "pyrdma/lib/", "pyarrow/libarrow_flight", "pyarrow/_flight")
"""Files for a compiler, which a node lacks, and for Arrow's servers, a sixth of its size."""

_FOLDERS_LEFT_OUT = {"include", "tests"}
"""Folders of packages that no program imports: a quarter of the files."""


def unpack(wheels: Sequence[Path], folder: Path) -> None:
    """Unpack wheels into `folder`, which holds nothing else.

    Raises
    ------
    Error
        A wheel is damaged, leads outside, overwrites a file of another, or is too large.
    """
    files = size = 0
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.infolist():
                    files, size = files + 1, size + member.file_size
                    if files > MOST_FILES or size > MOST_BYTES:
                        raise Error(
                            f"{wheel.name}: the wheels have more than {MOST_FILES} files or "
                            f"{MOST_BYTES} bytes; no packages of a node are so large"
                        )
                    place = _place(member, wheel)
                    if place is not None:
                        _write(archive, member, folder / place, wheel)
        except (OSError, EOFError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            if isinstance(error, Error):
                raise
            raise Error(f"{wheel.name} cannot be unpacked: {error}; get it again") from error


def _place(member: zipfile.ZipInfo, wheel: Path) -> PurePosixPath | None:
    """Return where a member goes; None for what a node does not need."""
    name = member.filename
    parts = name.rstrip("/").split("/")
    mode = member.external_attr >> 16
    is_plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
    if not is_plain or "\\" in name or "\0" in name or any(p in ("", ".", "..") for p in parts):
        raise Error(f"{wheel.name} has the entry {name!r}, which may lead outside; do not use it")
    if member.is_dir() or name.startswith(_LEFT_OUT) or _FOLDERS_LEFT_OUT.intersection(parts[1:-1]):
        return None
    if parts[0].endswith(".data"):
        # A wheel of two places has the second one here; programs and headers are not needed.
        parts = parts[2:] if parts[1:2] in (["purelib"], ["platlib"]) else []
    return PurePosixPath(*parts) if parts else None


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, wheel: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        target = path.open("xb")
    except FileExistsError:
        raise Error(f"{wheel.name} overwrites {path.name} of another wheel") from None
    # The archive checks the content: its length and CRC-32 are those that it states.
    with target, archive.open(member) as source:
        shutil.copyfileobj(source, target)
