"""Processes that run simulations on all cores, for sweeps and for fuzzing.

They have no queues with named semaphores, as those of `multiprocessing` are: such a semaphore stays
in ``/dev/shm`` after a ``kill -9`` of the process group. Each process has one socket and, on this
side, one thread.
"""

from __future__ import annotations

import logging
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, TypeVar

from . import children, provenance
from .arguments import Jobs, checked
from .errors import InvalidArgument

__all__ = ["Workers", "labelled"]

LOOK_S = 1.0
"""Period of the search for stopped processes; a process that two looks find stopped is reported."""

END_S = 5.0
"""Longest time for a process to end in its own way."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_log = logging.getLogger("pyrdma")


def labelled(label: Callable[..., str]) -> Callable[[_Function], _Function]:
    """Decorate a function for workers: `label`, called with its arguments, names a call of it."""

    def decorate(function: _Function) -> _Function:
        function.label = label  # type: ignore[attr-defined]
        return function

    return decorate


class _Task(NamedTuple):
    future: Future[Any]
    message: bytes
    label: str
    round: int


class _InWorker(Exception):
    """The traceback of an error in a worker, as the cause of the error."""

    def __str__(self) -> str:
        return f"in the worker process\n\n{self.args[0]}"


class Workers(Executor):
    """Processes that run simulations; several sweeps may share them.

    `submit` starts the processes. A new process replaces one that has died.
    The call that a process ran when it died gets the error `BrokenProcessPool`. A process that
    somebody stops is named on the log ``pyrdma``, together with the call that waits for it.
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
        Python loads modules from a folder that others may write to; the message names it.
    """

    @checked
    def __init__(self, jobs: Jobs | None = None, at_most: int | None = None) -> None:
        wanted = jobs or provenance.usable_cores()
        self._count = max(1, wanted if at_most is None else min(wanted, at_most))
        self._command = children.python("pyrdma._worker")
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # of the attributes below
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._round = 0  # tasks of an earlier round do not begin: they have been cancelled
        self._ended = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn` in a process; see `concurrent.futures.Executor`.

        Raises
        ------
        InvalidArgument
            The function is of the program's main file, which the processes do not load.
        """
        if getattr(fn, "__module__", None) == "__main__":
            raise InvalidArgument(
                f"{fn.__qualname__} is a function of the program's main file, which workers do not "
                "load; put it into a module of its own and import it"
            )
        message = bytes(ForkingPickler.dumps((fn, args, kwargs)))
        label = getattr(fn, "label", None)
        text = getattr(fn, "__qualname__", str(fn)) if label is None else label(*args, **kwargs)
        future: Future[Any] = Future()
        with self._lock:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._tasks.put(_Task(future, message, text, self._round))
            if len(self._threads) < self._count:
                # A daemon: the end of the program closes the sockets, which ends the processes.
                self._threads.append(threading.Thread(target=self._serve, daemon=True))
                self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes when their tasks are done."""
        with self._lock:
            if cancel_futures:
                self._round += 1
            if not self._ended:
                self._ended = True
                for _ in self._threads:
                    self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def kill(self) -> None:
        """End the processes now, since a simulation does not check for cancellation."""
        with self._lock:
            self._round += 1
            for process in self._processes:
                process.kill()
        for process in list(self._processes):
            process.wait()
        sys.stderr.flush()

    def __exit__(self, kind: object, *rest: object) -> None:
        """End the processes: after their tasks, or at once after an exception."""
        if kind is not None:
            self.kill()
        self.shutdown()

    def _serve(self) -> None:
        """Pass tasks to one process, in a thread of its own; replace a process that has died."""
        # The process inherits the mask: only this program receives Ctrl-C, and ends the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        worker: _Worker | None = None
        while (task := self._tasks.get()) is not None:
            if task.round != self._round:
                task.future.cancel()
            if not task.future.set_running_or_notify_cancel():
                continue
            try:
                if worker is None or worker.process.poll() is not None:
                    self._forget(worker)
                    worker = None
                    worker = self._start(task)
                result, error, text = worker.run(task)
            except (EOFError, ConnectionError):
                self._forget(worker)
                worker = None
                error, text = BrokenProcessPool(f"{task.label}: the worker process died"), ""
            except BaseException as own:
                # The process may have sent a part of its answer, or do so yet.
                self._forget(worker)
                worker = None
                error, text = own, ""
            if error is None:
                task.future.set_result(result)
                continue
            if text:
                error.__cause__ = _InWorker(text)
            task.future.set_exception(error)
        self._forget(worker, wait=True)

    def _start(self, task: _Task) -> _Worker:
        with self._lock:
            if task.round != self._round:
                raise BrokenProcessPool(f"{task.label}: the workers have been killed")
            worker = _Worker(self._command)
            self._processes.add(worker.process)
        return worker

    def _forget(self, worker: _Worker | None, wait: bool = False) -> None:
        if worker is None:
            return
        worker.end(wait)
        with self._lock:
            self._processes.discard(worker.process)


class _Worker:
    """One process and the socket to it."""

    def __init__(self, command: list[str]) -> None:
        self._pipe: Connection[Any, Any]
        self._pipe, other = Pipe()
        with other:
            self.process = subprocess.Popen(command, stdin=other.fileno())

    def run(self, task: _Task) -> tuple[Any, BaseException | None, str]:
        """Return the result of a task, or its error and the text of the traceback."""
        self._pipe.send_bytes(task.message)
        looks = 0
        while not self._pipe.poll(LOOK_S):
            looks = looks + 1 if children.is_stopped(self.process.pid) else 0
            if looks == 2:
                _log.warning(
                    "pyrdma: worker process %d is stopped, so this waits: %s; the run goes on when "
                    "the process does: kill -CONT %d",
                    *(self.process.pid, task.label, self.process.pid),
                )
        answer: tuple[Any, BaseException | None, str] = self._pipe.recv()
        return answer

    def end(self, wait: bool) -> None:
        """End the process: now, or in its own way if `wait`, so that its exit handlers run."""
        if wait:
            with suppress(OSError, subprocess.TimeoutExpired):
                self._pipe.send_bytes(b"")
                self.process.wait(END_S)
        self.process.kill()
        self.process.wait()
        self._pipe.close()
