"""Processes that run simulations on all cores, for sweeps and for fuzzing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from typing import Any

from . import provenance
from .errors import Error

__all__ = ["Workers"]


class Workers(Executor):
    """Processes that run simulations; several sweeps may have the same ones.

    They are started when first needed, and again after one has died. As a context manager they end
    at once where an exception leaves the block, with what they are measuring.

    Parameters
    ----------
    jobs
        How many; all cores if None.
    at_most
        As many as there is work for.

    Raises
    ------
    Error
        The program's main file cannot be loaded by a process; the message says what to change.
    """

    def __init__(self, jobs: int | None = None, at_most: int | None = None) -> None:
        _check_main()
        wanted = jobs or provenance.usable_cores()
        self._count = max(1, wanted if at_most is None else min(wanted, at_most))
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a process call `fn`; see `concurrent.futures.Executor`."""
        if self._pool is not None:
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenProcessPool:
                self.kill()
        self._pool = ProcessPoolExecutor(
            max_workers=self._count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
        )
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes when they are done."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def kill(self) -> None:
        """End the processes now; a simulation does not watch for cancellation.

        The futures are not cancelled before: a pool whose processes die fails what is pending, and
        stumbles over a future that somebody else has cancelled.
        """
        if self._pool is None:
            return
        for process in list((getattr(self._pool, "_processes", None) or {}).values()):
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None
        sys.stderr.flush()

    def __exit__(self, kind: object, *rest: object) -> None:
        """End the processes: when they are done, or at once after an exception."""
        if kind is None:
            self.shutdown()
        else:
            self.kill()


def _check_main() -> None:
    """Raise where a new process could not load the program's main file, as it does first of all."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing asks
        raise Error(
            "a worker process has loaded the script that started it, and the script starts workers "
            "again; put what the script does under `if __name__ == '__main__':`"
        )
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is None and file is not None and not Path(file).exists():
        raise Error(
            f"worker processes load the program's main file, but {file} is no file; "
            "save the program as a file and run that"
        )


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def follow() -> None:
        wait_for_any([sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
