"""Temporary files and folders, which also vanish when their process is killed.

Each is locked by the process that made it. The kernel releases the lock of a dead process, and
whoever makes the next one removes what nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["scratch_file", "scratch_folder"]

_PREFIX = "pyrdma-scratch-"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder below ``$TMPDIR``, removed at the end or when SIGTERM comes."""
    parent = Path(tempfile.gettempdir())
    with _held(parent, _PREFIX, lambda: tempfile.mkdtemp(prefix=_PREFIX, dir=parent)) as path:
        yield path


@contextmanager
def scratch_file(target: Path) -> Iterator[Path]:
    """Yield an empty file beside `target`, to be renamed to it; otherwise it is removed alike."""

    def made() -> str:
        descriptor, name = tempfile.mkstemp(prefix=f".{_PREFIX}", dir=target.parent)
        os.close(descriptor)
        return name

    with _held(target.parent, f".{_PREFIX}", made) as path:
        yield path


@contextmanager
def _held(parent: Path, prefix: str, make: Callable[[], str]) -> Iterator[Path]:
    for left in parent.iterdir():
        if left.name.startswith(prefix):
            _remove_dead(left)
    with _ended_by_exception():
        path, descriptor = _locked(make)
        try:
            yield path
        finally:
            _remove(path)
            os.close(descriptor)


def _locked(make: Callable[[], str]) -> tuple[Path, int]:
    while True:
        path = Path(make())
        with suppress(FileNotFoundError):
            descriptor = os.open(path, _OPEN)
            with suppress(OSError):  # without locks nobody else removes it, either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists():
                return path, descriptor
            os.close(descriptor)  # another process took it for that of a dead one


def _remove_dead(path: Path) -> None:
    """Remove what a process of this user has left; nothing that a living one holds."""
    with suppress(OSError):
        descriptor = os.open(path, _OPEN)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
        finally:
            os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _ended_by_exception() -> Iterator[None]:
    """Let SIGTERM end the program as an exception does, unless the program handles it itself."""
    usual = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
