"""The folder of a test bed: numbered, and locked as long as the bed lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO

MOST_BEDS = 120
"""Most beds at one time; each has two networks of 8 bits."""


def take_folder() -> tuple[IO[str], Path, int]:
    """Return a locked folder of this run and its number, and remove those of killed runs."""
    temporary = Path(tempfile.gettempdir())
    taken: tuple[IO[str], Path, int] | None = None
    for number in range(MOST_BEDS):
        folder = temporary / f"pyrdma-hosts-{number}"
        if taken is not None and not folder.is_dir():
            continue
        lock = _lock(folder)
        if lock is None:
            continue
        if taken is None:
            for left in folder.iterdir():
                if left.name != "lock":
                    remove(left)
            taken = (lock, folder, number)
        else:
            remove(folder)
            lock.close()
    if taken is None:
        raise RuntimeError(f"{MOST_BEDS} test beds are in use below {temporary}")
    return taken


def _lock(folder: Path) -> IO[str] | None:
    """Return the lock of a folder, made if it is missing; None while another run has it."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return None
        lock = (folder / "lock").open("a")
    except (FileExistsError, FileNotFoundError):  # a file, or another run removes the folder
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock.fileno()).st_ino == (folder / "lock").stat().st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    lock.close()
    return None


def remove(path: Path) -> None:
    """Remove a file or a folder, and the control groups of a bed's folder."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    shutil.rmtree(path, ignore_errors=True)
    parent = cgroups()
    if parent is not None and path.name.startswith("pyrdma-hosts-"):
        for folder, _, _ in os.walk(parent / path.name, topdown=False):
            with contextlib.suppress(OSError):  # in use
                Path(folder).rmdir()


def cgroups() -> Path | None:
    """Return the folder of the control groups, version 2, if this process may write it."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup2" and options.split(",")[0] == "rw":
            return Path(folder)
    return None
