"""Results from elsewhere, as a results folder of this machine."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyrdma.arguments import FilePath, checked
from pyrdma.errors import Error, InvalidArgument
from pyrdma.files import disk_error, has_content, own_folder, replacing, sync_folder
from pyrdma.hosts import stored
from pyrdma.hosts.host import Host
from pyrdma.results import check_folder
from pyrdma.store import MOST_BYTES

from . import crate

__all__ = ["fetch", "is_unpacked"]

_PARTIAL = "partial-"


@checked
def fetch(source: FilePath) -> Path:
    """Return the results folder of a source, for `pyrdma.load`, `pyrdma.compare` and the commands.

    Parameters
    ----------
    source
        An archive that ``pyrdma archive`` made; an inventory (``hosts.yml``), whose first host has
        the results of ``playbooks/run.yml``; or a results folder, which is returned as it is.

    Returns
    -------
    Path
        A folder to read. An archive is unpacked once, below ``$XDG_CACHE_HOME/pyrdma`` or
        ``~/.cache/pyrdma``, into a folder that its SHA-256 names. Each call compares all files
        there with the archive's digests. Nothing removes these folders; you may at any time.
        Results of hosts lie beside, in a folder for each inventory; each call copies what is new.

    Raises
    ------
    InvalidArgument
        The source does not exist, or is of no such kind.
    HostLost
        The first host cannot be reached, or has other code than this program.
    Error
        The archive is damaged, the copy was changed, the host has no results, or the disk is full.
    """
    path = Path(source)
    for is_kind, results_of in _KINDS:
        if is_kind(path):
            return results_of(path)
    problem = "is of another kind" if path.exists() else "is not there"
    raise InvalidArgument(
        f"source {str(path)!r} {problem}; give an archive of 'pyrdma archive', an inventory or a "
        "results folder"
    )


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


def _of_hosts(path: Path) -> Path:
    """Copy what is new of the results on the first host of an inventory."""
    from pyrdma.hosts.fleet import Fleet
    from pyrdma.hosts.inventory import Inventory

    inventory = Inventory.load(path)
    first = inventory.hosts[0]
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    folder = own_folder(_cache(), "pyrdma", "hosts", f"{inventory.testbed}-{name}")
    with Fleet(inventory.select(first.name)) as fleet:
        copied = _copy(fleet.hosts[0], folder)
    if not copied:
        raise Error(
            f"host {first.name} has no results in {stored.FOLDER}; the playbook run.yml makes some"
        )
    return check_folder(folder, "source")


def _copy(host: Host, folder: Path) -> int:
    """Copy the files that are not here with the same content; return the number of all files."""
    count, after = 0, ""
    changed: set[Path] = set()
    while files := host.call("list_results", after=after)["files"]:
        for name, size, digest in files:
            if not stored.NAME.fullmatch(name) or name <= after or size > MOST_BYTES:
                raise Error(f"host {host.name} lists {name!r} of {size} bytes, which is no result")
            count, after = count + 1, name
            target = own_folder(folder, *name.split("/")[:-1]) / name.rpartition("/")[2]
            if not has_content(target, size, digest):
                _fetch(host, name, size, digest, target)
                changed.add(target.parent)
    for place in changed:
        try:
            sync_folder(place)
        except OSError as error:
            raise disk_error(place, error) from error
    return count


def _fetch(host: Host, name: str, size: int, digest: str, target: Path) -> None:
    """Copy a file, a piece in memory at a time; its folder is not synced yet."""
    with replacing(target, lasting=False) as stream:
        have, seen = 0, hashlib.sha256()
        while have < size:
            piece = base64.b64decode(host.call("read_result", file=name, offset=have))
            if not piece:
                break
            stream.write(piece)
            seen.update(piece)
            have += len(piece)
        if (have, seen.hexdigest()) != (size, digest):
            raise Error(f"{name} has changed on host {host.name} while it was read; fetch again")


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
    (lambda path: path.suffix in (".yml", ".yaml"), _of_hosts),
)
"""The kinds of sources: whether a path is of the kind, and the results folder of such a path."""
