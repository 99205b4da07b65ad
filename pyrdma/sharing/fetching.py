"""Results from elsewhere, as a results folder of this machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyrdma.arguments import FilePath, checked
from pyrdma.errors import Error, InvalidArgument
from pyrdma.files import disk_error, own_folder
from pyrdma.results import check_folder

from . import crate

__all__ = ["fetch", "is_unpacked"]

_PARTIAL = "partial-"


@checked
def fetch(source: FilePath) -> Path:
    """Return the results folder of a source, for `pyrdma.load`, `pyrdma.compare` and the commands.

    Parameters
    ----------
    source
        An archive that ``pyrdma archive`` made, or a results folder, which is returned as it is.

    Returns
    -------
    Path
        A folder to read. An archive is unpacked once, below ``$XDG_CACHE_HOME/pyrdma`` or
        ``~/.cache/pyrdma``, into a folder that its SHA-256 names. Each call compares all files
        there with the archive's digests.

    Raises
    ------
    InvalidArgument
        The source does not exist, or is neither.
    Error
        The archive is damaged, the copy was changed, or the disk is full.
    """
    path = Path(source)
    for is_kind, results_of in _KINDS:
        if is_kind(path):
            return results_of(path)
    problem = "is no archive of 'pyrdma archive' and no folder" if path.exists() else "is not there"
    raise InvalidArgument(f"source {str(path)!r} {problem}; give an archive or a results folder")


def is_unpacked(results: Path) -> bool:
    """Return whether a results folder is that of an unpacked archive."""
    return (results.parent / crate.METADATA).is_file()


def _unpacked(path: Path) -> Path:
    cache = own_folder(_cache(), "pyrdma", "archives")
    with crate.opened(path) as archive:
        folder = cache / archive.sha256
        descriptor = os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not folder.exists():
                _unpack(archive, cache, folder)
        finally:
            os.close(descriptor)
        if differ := crate.changed(archive, folder):
            raise Error(
                f"{folder} has changed since {path} was unpacked there, {len(differ)} files such "
                f"as {differ[0]}; move elsewhere what you have measured into it, and remove it"
            )
    return check_folder(folder / "results", "source")


def _unpack(archive: crate.Archive, cache: Path, folder: Path) -> None:
    """Unpack an archive at once; remove the partial folder that a killed process has left."""
    for left in cache.glob(f"{_PARTIAL}*"):
        shutil.rmtree(left)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=cache))
    try:
        archive.unpack(partial)
        partial.rename(folder)
    except OSError as error:
        raise disk_error(folder, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _cache() -> Path:
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        raise Error("there is no home folder; set XDG_CACHE_HOME to a folder") from None


_KINDS: tuple[tuple[Callable[[Path], bool], Callable[[Path], Path]], ...] = (
    (Path.is_dir, lambda path: check_folder(path, "source")),
    (crate.is_archive, _unpacked),
)
"""The kinds of sources: whether a path is of the kind, and the results folder of such a path."""
