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
from .arguments import Jobs, checked
from .errors import Error

__all__ = ["Workers"]


class Workers(Executor):
    """Processes that run simulations; several sweeps may share them.

    The first call of `submit` starts the processes, and so does the first call after one has died.
    Used as a context manager, the object kills the processes at once if an exception leaves the
    block.

    Parameters
    ----------
    jobs
        Number of processes; one per core if None.
    at_most
        Upper bound of that number: the number of tasks.

    Raises
    ------
    Error
        The program's main file cannot be loaded by a process; the message says what to change.
    """

    @checked
    def __init__(self, jobs: Jobs | None = None, at_most: int | None = None) -> None:
        _check_main()
        wanted = jobs or provenance.usable_cores()
        self._count = max(1, wanted if at_most is None else min(wanted, at_most))
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn` in a process; see `concurrent.futures.Executor`."""
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
        """End the processes when their tasks are done."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def kill(self) -> None:
        """End the processes now, since a simulation does not check for cancellation.

        The method does not cancel the futures first. A pool whose processes die fails its pending
        futures itself, and raises an error at a future that is already cancelled.
        """
        if self._pool is None:
            return
        for process in list((getattr(self._pool, "_processes", None) or {}).values()):
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None
        sys.stderr.flush()

    def __exit__(self, kind: object, *rest: object) -> None:
        """End the processes: after their tasks, or at once after an exception."""
        if kind is None:
            self.shutdown()
        else:
            self.kill()


def _check_main() -> None:
    """Raise if a new process cannot load the program's main file, which is its first step."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing's test
        raise Error(
            "a worker process has loaded the script that started it, and the script starts workers "
            "again; put the script's statements under `if __name__ == '__main__':`"
        )
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is None and file is not None and not Path(file).exists():
        raise Error(
            f"worker processes load the program's main file, but {file} is not a file; "
            "save the program as a file and run the file"
        )


def _start_worker() -> None:
    """Ignore Ctrl-C, which the parent handles; end with the parent even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def follow() -> None:
        wait_for_any([sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
