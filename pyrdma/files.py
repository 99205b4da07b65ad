"""Files of results: read with bounds, written whole, in folders that only their owner can prepare.

A results folder may lie on a file system that several hosts share. Each file is therefore written
under a temporary name and renamed, which every file system does at once; no reader needs a lock. A
reader checks each file before it uses it: another program, a full disk or another user may have
written it.

A file is on the disk before it is renamed. Its name is there only when its folder has been synced,
too. Without that a file that was reported as written may be gone after a power failure.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .errors import Error, Exhausted, InvalidArgument
from .trust import name_of, trusted_users

__all__ = [
    "DamagedFile",
    "DiskFull",
    "WrittenFolder",
    "check_output",
    "digest_of",
    "digest_of_stream",
    "disk_error",
    "has_content",
    "lock_folder",
    "make_folders",
    "own_folder",
    "put_in_place",
    "read_regular",
    "replacing",
    "sync_folder",
    "write_atomically",
    "write_json",
]


SYNC_S = 1.0
"""Shortest time between two syncs of a `WrittenFolder`, unless its owner calls for one."""


class DiskFull(Exhausted):
    """The disk is full; earlier measurements stay."""


class DamagedFile(UserWarning):
    """A stored file is not what pyrdma has written; the text names the file and the reason."""


def own_folder(base: Path, *names: str) -> Path:
    """Return the folder ``base/names...``, made if it is missing.

    Raises
    ------
    Error
        A part from `base` on belongs to another user (root excepted), is a symbolic link (`base`
        itself may be one), or may be written by all users without the sticky bit. Another user
        could have prepared it, so that files outside are written or removed through it.
    """
    folder = base
    try:
        make_folders(base)
        if base.lstat().st_uid not in trusted_users():
            raise _foreign(base, base.lstat())
        _check_own(base, base.stat())
        for name in names:
            folder = folder / name
            with suppress(FileExistsError):
                folder.mkdir()
                sync_folder(folder.parent)
            _check_own(folder, folder.lstat())
    except OSError as error:
        raise disk_error(base.joinpath(*names), error) from error
    return folder


def _check_own(folder: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise Error(
            f"{folder} is a symbolic link; below a results folder pyrdma follows none. Remove it, "
            "or choose another results folder (--out)"
        )
    if not stat.S_ISDIR(status.st_mode):
        raise Error(f"{folder} is not a folder; remove it, or choose another (--out)")
    if status.st_uid not in trusted_users():
        raise _foreign(folder, status)
    # With the sticky bit others can add entries, which are refused here, and cannot replace any.
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise Error(
            f"all users may write to {folder}, so others could replace files in it; run "
            f"'chmod o-w {folder}', or choose another results folder (--out)"
        )


def _foreign(folder: Path, status: os.stat_result) -> Error:
    return Error(
        f"{folder} belongs to {name_of(status.st_uid)}, who could have prepared it; choose another "
        "results folder (--out)"
    )


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes; follow no symbolic link.

    Raises
    ------
    ValueError
        It is another kind of file, or longer.
    OSError
        It cannot be read.
    """
    with _regular(path) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return content


def digest_of(path: Path, most: int | None = None) -> tuple[int, str]:
    """Return the size and the SHA-256 of a file, a piece in memory at a time; see `read_regular`.

    Without `most` it may have any size.
    """
    with _regular(path) as stream:
        return digest_of_stream(stream, most)


def digest_of_stream(stream: IO[bytes], most: int | None = None) -> tuple[int, str]:
    """Return the size and the SHA-256 of what a file still has; see `digest_of`."""
    digest = hashlib.sha256()
    size = 0
    while block := stream.read(1 << 20):
        digest.update(block)
        size += len(block)
        if most is not None and size > most:
            raise ValueError(f"it has more than {most} bytes")
    return size, digest.hexdigest()


def has_content(path: Path, size: int, digest: str) -> bool:
    """Return whether a regular file has this size and SHA-256; a longer one is not read whole."""
    try:
        return digest_of(path, size) == (size, digest)
    except (OSError, ValueError):  # it is not there, longer, a link, or no file
        return False


@contextmanager
def _regular(path: Path) -> Iterator[IO[bytes]]:
    # O_NONBLOCK: the opening of a pipe that nobody writes to would never end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        yield stream


def write_atomically(path: Path, content: bytes, *, lasting: bool = True) -> None:
    """Write a file so that a reader sees the old or the new content whole, even after a crash.

    Parameters
    ----------
    lasting
        The new content is there after a power failure, too. Otherwise the old may come back until
        `sync_folder`, which costs as much as the writing.

    Raises
    ------
    DiskFull
        The disk is full.
    Error
        The folder cannot be written.
    """
    with replacing(path, lasting=lasting) as stream:
        stream.write(content)


@contextmanager
def replacing(path: Path, *, lasting: bool = True) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path` at the end; see `write_atomically`.

    Raises
    ------
    DiskFull, Error
        It cannot be written. `path` is as it was, unless the disk failed to sync its folder.
    """
    temporary = None
    try:
        make_folders(path.parent)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        umask = os.umask(0)
        os.umask(umask)
        put_in_place(Path(temporary), path, 0o666 & ~umask, lasting=lasting)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, Error):  # a Timeout is both
            raise disk_error(path, error) from error
        raise


def put_in_place(made: Path, path: Path, mode: int, *, lasting: bool = True) -> None:
    """Let a finished file take the place of `path`; see `write_atomically`.

    Raises
    ------
    OSError
        It cannot be written or renamed.
    """
    descriptor = os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    made.chmod(mode)
    made.replace(path)
    if lasting:
        sync_folder(path.parent)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it, so that they are there after a power failure, too."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: those of new, renamed and removed files.

    Some file systems, such as CIFS, cannot do this, and nothing waits there.

    Raises
    ------
    OSError
        The disk has failed.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # it may be written and not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


class WrittenFolder:
    """A folder into which many files are written, and whose names are synced together.

    A sync of the folder lasts as long as the writing of a small file. So a write syncs only when
    the last sync was `SYNC_S` ago. A power failure costs the files since the last sync: those that
    came within `SYNC_S` of it, however long ago that is, and the one that is being written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced = time.monotonic()
        self._is_synced = True

    def write(self, name: str, content: bytes) -> None:
        """Write a file; see `write_atomically`."""
        write_atomically(self._folder / name, content, lasting=False)
        self._is_synced = False
        if time.monotonic() - self._synced >= SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Wait until the names of all files are on the disk.

        Raises
        ------
        Error
            The disk has failed.
        """
        if self._is_synced:
            return
        self._is_synced = True  # before: another thread may write a file meanwhile
        try:
            sync_folder(self._folder)
        except OSError as error:
            raise disk_error(self._folder, error) from error
        self._synced = time.monotonic()


def check_output(path: Path, option: str) -> None:
    """Refuse a place where no file can be written, before a command works for minutes.

    Raises
    ------
    InvalidArgument
        It is a folder, a device or the like, or its folder cannot be made or written.
    """
    if path.exists() and not path.is_file():
        raise InvalidArgument(f"{option} {path} is no file; give the name of a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidArgument(
            f"{option} {path}: {folder} is no folder in which you may write; give another place"
        )


def disk_error(path: Path, error: OSError) -> Error:
    """Return the error for a failed write to `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"{path}: no space left on the disk; earlier measurements stay; free some space "
            "and run the same command to continue"
        )
    if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY):
        return Error(f"{path} is in the way of a file of results; move it away")
    return Error(f"cannot write {path}: {error.strerror}; choose another place (--out)")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, indented for people."""
    write_atomically(path, (json.dumps(document, indent=2, default=str) + "\n").encode())


def lock_folder(folder: Path, name: str) -> int:
    """Take the lock `name` of a folder, which the kernel releases when its holder dies.

    The lock saves measuring twice. The files do not need it, so a file system without locks will
    do.
    """
    path = folder / name
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR):
            raise Error(f"{path} is a symbolic link or a folder; remove it") from None
        # A once writable folder may have become read-only.
        raise disk_error(folder, error) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise Error(f"{path} is not a file of its own; remove it")
        _take(descriptor, folder)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(descriptor)
        raise disk_error(folder, error) from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            return
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        holder = holder if holder.isdigit() else "unknown"
        raise Error(
            f"{folder}: another run (process {holder}) uses this folder; wait for "
            "it or choose another results folder (--out)"
        ) from None
