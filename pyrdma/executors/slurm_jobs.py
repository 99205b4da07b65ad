"""Measures points by jobs of Slurm, a group of points in each.

The program and the jobs share a folder with mode 0700 below the results folder, which goes with the
run. The program writes a job's calls there as a pickle; a job writes each point there as soon as it
is measured. ``squeue`` tells which jobs have ended: it needs no accounting database.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyrdma import children
from pyrdma.arguments import Jobs, checked
from pyrdma.errors import Error, Unavailable
from pyrdma.extras import install_extra
from pyrdma.files import DiskFull, disk_error, own_folder, read_regular
from pyrdma.store import MOST_BYTES

from . import _slurm_group
from .same_code import ExecutorError, OtherCode

__all__ = ["SlurmJobs"]

COLLECT_S = 0.5
"""Period of the search for measured points."""

LOOK_S = 5.0
"""Period of the questions to ``squeue``; a job that two answers do not list has ended."""

BEAT_S = 5.0
"""Period of the signs of life to the jobs."""

MOST_PAUSE_S = 60.0
"""Longest pause before the next ``sbatch`` after one that failed; the first is `LOOK_S`."""

ANSWER_S = 30.0
"""Longest time for a program of Slurm to answer."""

SILENCE_S = 300.0
"""A run ends when Slurm's controller has not answered for this long, or has taken no job and none
is left."""

END_S = 60.0
"""Longest time for the jobs to end at the end of a run."""

MOST_JOBS = 64
"""Most jobs unless the caller names a number."""

HOUR_MIN = 60
"""Time limit of a job, in minutes, unless SBATCH_TIMELIMIT says otherwise."""

_log = logging.getLogger("pyrdma")
_ENTRY = re.compile(r"(\d+)\.(begun|point|error)")


class _Call(NamedTuple):
    future: Future[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class SlurmJobs(Executor):
    """Jobs of Slurm that measure points.

    A job that ends early has lost the call that it had begun, which gets the error
    `BrokenProcessPool`; another job makes its further calls. A thread of this object submits the
    jobs and looks after them. Sbatch's own variables, such as ``SBATCH_PARTITION``,
    ``SBATCH_ACCOUNT`` and ``SBATCH_TIMELIMIT``, choose what Slurm gives the jobs.

    Slurm may refuse a job for a while: its controller restarts, or the user has as many jobs as he
    may have. The calls of the job then wait, and the other jobs go on. The refusal of the very
    first job by a controller that answers ends the run: a setting is wrong, and nothing is lost.

    Parameters
    ----------
    jobs
        Number of jobs at a time; one per core of the cluster if None, and 64 at most then.
    out
        The results folder, which all nodes see under this path.

    Raises
    ------
    Unavailable
        submitit or Slurm is not installed.
    """

    @checked
    def __init__(self, jobs: Jobs | None, out: Path) -> None:
        for program in ("sbatch", "squeue", "scancel", "sinfo"):
            if shutil.which(program) is None:
                raise Unavailable(
                    f"--executor slurm needs the program {program} of Slurm; run pyrdma on a login "
                    "node of the cluster"
                )
        try:
            import submitit
            from submitit.core.utils import FailedJobError
        except ModuleNotFoundError as error:
            raise Unavailable(
                "submitit is missing, which --executor slurm needs; install pyrdma's extra "
                f"`slurm` with: {install_extra('slurm')}"
            ) from error
        self._submitit = submitit
        self._refusal = FailedJobError
        self._engine: Any = None
        self._most = jobs
        self._out = out.absolute()
        self._name = f"pyrdma-{secrets.token_hex(6)}"
        self._folder: Path | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._beaten = threading.Event()  # the jobs need no further sign of life
        self._lock = threading.Lock()  # of the attribute below
        self._new: list[_Call] = []
        self._numbers = itertools.count()
        self._groups: deque[list[int]] = deque()  # of calls that no job has yet
        self._pause = 0.0
        self._again = 0.0
        self._worked = 0.0  # when last a job was there or taken, or calls began to wait
        self._is_accepted = False
        self._waiting: dict[int, _Call] = {}
        self._begun: set[int] = set()
        self._jobs: dict[str, list[int]] = {}
        self._absent: dict[str, int] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn`, which returns bytes, in a job; see `concurrent.futures.Executor`."""
        assert not kwargs
        future: Future[Any] = Future()
        with self._lock:
            if self._ending.is_set():
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._new.append(_Call(future, fn, args))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()
        return future

    def kill(self) -> None:
        """Cancel the jobs, and wait until they have ended."""
        self.shutdown()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel the jobs that have not ended, and remove their folder."""
        del cancel_futures
        with self._lock:
            self._ending.set()
        if wait and self._thread is not None:
            self._thread.join()

    def __exit__(self, *_: object) -> None:
        """End the jobs."""
        self.shutdown()

    # ---- the thread ----

    def _serve(self) -> None:
        """Submit jobs and collect points until the end."""
        # Programs inherit the mask: Ctrl-C must not end an sbatch between a job and its number.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        answered = looked = self._worked = time.monotonic()
        beating: threading.Thread | None = None
        try:
            self._folder = _make_folder(self._out)
            beating = threading.Thread(target=self._beat, args=(self._folder,), daemon=True)
            beating.start()
            while not self._ending.wait(0 if self._can_submit() else COLLECT_S):
                with self._lock:
                    calls, self._new = self._new, []
                self._deal(calls)
                if self._can_submit():
                    self._submit_one()
                self._collect()
                now = time.monotonic()
                if now - looked < LOOK_S:
                    continue
                looked = now
                try:
                    listed = self._listed() if self._jobs else set()
                    answered = now
                except (OSError, subprocess.SubprocessError) as error:
                    if now - answered > SILENCE_S:
                        raise ExecutorError(
                            f"squeue has failed for {SILENCE_S:g} s ({_said(error)}); when Slurm "
                            "answers again, the same command resumes the run"
                        ) from error
                    continue
                self._look(listed)
        except BaseException as error:
            failure = error if isinstance(error, (ExecutorError, DiskFull)) else _unexpected(error)
            with self._lock:
                self._ending.set()
                calls, self._new = self._new, []
            for call in (*self._waiting.values(), *calls):
                _fail(call.future, failure)
        finally:
            self._cancel()
            self._beaten.set()
            if beating is not None:
                beating.join()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _beat(self, folder: Path) -> None:
        """Show the jobs signs of life, in a thread that no program of Slurm can hold up."""
        while not self._beaten.wait(BEAT_S):
            with suppress(Error):  # what fails for long fails for the points, too, which say so
                _slurm_group.beat(folder, time.monotonic())

    def _deal(self, calls: Sequence[_Call]) -> None:
        """Put these calls into groups, one for each job that is to be submitted."""
        if not calls:
            return
        numbered = [(next(self._numbers), call) for call in calls]
        self._waiting.update(numbered)  # first: an error of what follows ends them, too
        if self._most is None:
            self._most = _cores()
        if not self._groups:
            self._worked = time.monotonic()
        busy = sum(any(n in self._waiting for n in numbers) for numbers in self._jobs.values())
        groups = max(1, min(len(calls), self._most - busy - len(self._groups)))
        self._groups += [[n for n, _ in numbered[first::groups]] for first in range(groups)]

    def _can_submit(self) -> bool:
        return bool(self._groups) and time.monotonic() >= self._again

    def _submit_one(self) -> None:
        """Submit a job for the first group of calls, which stays if Slurm does not take the job."""
        assert self._folder is not None
        if self._engine is None:
            self._engine = self._make_engine(self._folder)
        calls = [(number, self._waiting[number]) for number in self._groups[0]]
        work = [(number, call.function, call.arguments) for number, call in calls]
        try:
            job = self._engine.submit(_slurm_group.run, str(self._folder), str(Path.cwd()), work)
        except self._refusal as error:
            self._refused(error)
            return
        except Exception as error:
            raise _takes_none(error) from error
        self._jobs[job.job_id] = self._groups.popleft()
        self._is_accepted = True
        self._worked, self._pause = time.monotonic(), 0.0

    def _refused(self, error: Exception) -> None:
        """Let the next ``sbatch`` wait, or end the run if Slurm would refuse for good."""
        now = time.monotonic()
        self._pause = min(MOST_PAUSE_S, 2 * self._pause or LOOK_S)
        self._again = now + self._pause
        if self._jobs:
            self._worked = now
        if now - self._worked > SILENCE_S:
            raise _takes_none(error) from error
        if not self._is_accepted:
            try:
                # An sbatch may fail although Slurm has the job, which then ends without its calls.
                self._is_accepted = bool(self._listed())
            except (OSError, subprocess.SubprocessError):
                return
            if not self._is_accepted:
                raise _takes_none(error) from error

    def _make_engine(self, folder: Path) -> Any:
        engine = self._submitit.SlurmExecutor(folder=folder / "jobs")
        engine.update_parameters(
            job_name=self._name,
            time=HOUR_MIN,
            nodes=1,
            ntasks_per_node=1,
            cpus_per_task=1,
            use_srun=False,
            stderr_to_stdout=True,
            # Python takes modules from the folder where it starts, so it starts in one of ours. A
            # job that Slurm starts again by itself would measure again what it has returned.
            additional_parameters={"chdir": str(folder), "no-requeue": True},
        )
        return engine

    def _collect(self) -> None:
        """Take the points that the jobs have written."""
        assert self._folder is not None
        place = self._folder / "points"
        os.utime(place)  # a network file system then looks at the folder again
        for entry in sorted(place.iterdir()):
            found = _ENTRY.fullmatch(entry.name)
            if found is None:
                continue
            number, kind = int(found[1]), found[2]
            if kind == "begun":
                self._begun.add(number)
                continue
            try:
                content = read_regular(entry, MOST_BYTES)
            except ValueError as error:
                kind, content = "error", json.dumps(["", f"a job's point: {error}"]).encode()
            entry.unlink()
            (place / f"{number}.begun").unlink(missing_ok=True)
            call = self._waiting.pop(number, None)  # last: an error above ends it, too
            if call is None or not call.future.set_running_or_notify_cancel():
                continue
            if kind == "point":
                call.future.set_result(content)
            else:
                call.future.set_exception(_error(content))

    def _listed(self) -> set[str]:
        """Return the jobs of this run that have not ended."""
        words = ["squeue", "--noheader", "--format=%i", f"--name={self._name}"]
        return set(_output([*words, f"--user={os.getuid()}"]).split())

    def _look(self, listed: set[str]) -> None:
        """Find the jobs that have ended, and make their further calls again."""
        ended = []
        for job in self._jobs:
            self._absent[job] = 0 if job in listed else self._absent.get(job, 0) + 1
            if self._absent[job] >= 2:
                ended.append(job)
        if ended:
            self._collect()  # what they have written last
        for job in ended:
            left = [number for number in self._jobs.pop(job) if number in self._waiting]
            calls = {number: self._waiting.pop(number) for number in left}
            # A job that has begun nothing says nothing about its calls: it may never have started.
            lost = [number for number in left if number in self._begun] or left
            for number in lost:
                reason = f"Slurm's job {job} ended early{self._end_of_log(job)}"
                _fail(calls.pop(number).future, BrokenProcessPool(reason))
            self._deal(list(calls.values()))

    def _end_of_log(self, job: str) -> str:
        assert self._folder is not None
        try:
            with (self._folder / "jobs" / f"{job}_0_log.out").open("rb") as log:
                lines = children.end_of(log).strip().splitlines()
        except OSError:
            return ""
        return f": {' '.join(lines[-1].split())[:300]}" if lines else ""

    def _cancel(self) -> None:
        """Cancel the jobs, and wait for their end; Slurm may fail to answer for a while."""
        if self._engine is None:
            return
        deadline = time.monotonic() + END_S
        is_cancelled = False
        while True:
            try:
                if not is_cancelled:  # Slurm may have a job although its sbatch failed
                    _output(["scancel", f"--name={self._name}", f"--user={os.getuid()}"])
                is_cancelled = True
                if not self._listed():
                    return
                problem = "they have been cancelled"
            except (OSError, subprocess.SubprocessError) as error:
                problem = _said(error)
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S / 5)
        _log.warning(
            "pyrdma: jobs have not ended (%s); scancel --name=%s cancels them", problem, self._name
        )


def _make_folder(out: Path) -> Path:
    """Return a new folder for jobs and points, which only this user may read."""
    own_folder(out)
    try:
        folder = Path(tempfile.mkdtemp(prefix=".slurm-", dir=out))
        (folder / "jobs").mkdir()
        (folder / "points").mkdir()
    except OSError as error:
        raise disk_error(out, error) from error
    _slurm_group.beat(folder, time.monotonic())
    return folder


def _cores() -> int:
    """Return the number of cores of the cluster's largest partition, 64 at most."""
    try:
        rows = _output(["sinfo", "--noheader", "--format=%C"]).split()
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"Slurm's controller does not answer sinfo: {_said(error)}") from error
    totals = [int(row.rpartition("/")[2]) for row in rows if re.fullmatch(r"[\d/]+/\d+", row)]
    return max(1, min(MOST_JOBS, max(totals, default=1)))


def _takes_none(error: Exception) -> ExecutorError:
    return ExecutorError(
        f"Slurm takes no job: {_said(error)}; name a partition, an account or a time limit in "
        "SBATCH_PARTITION, SBATCH_ACCOUNT or SBATCH_TIMELIMIT; the same command resumes the run"
    )


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=ANSWER_S, errors="replace"
    )
    return done.stdout


def _said(error: Exception) -> str:
    """Return on one line what a failed program said."""
    said = getattr(error, "stderr", None) or str(error)
    return " ".join(str(said).split())[:500]


def _error(content: bytes) -> Error:
    """Return the error that a job has written."""
    try:
        kind, text = json.loads(content)
    except (ValueError, TypeError, RecursionError):
        kind, text = "", "a job has written an error that cannot be read"
    return OtherCode(str(text)) if kind == "OtherCode" else Error(str(text))


def _unexpected(error: BaseException) -> ExecutorError:
    """Return the end of a run by an error of the thread, such as a folder that has gone."""
    text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    return ExecutorError(f"the run ends: {text}; the same command resumes it")


def _fail(future: Future[Any], error: BaseException) -> None:
    with suppress(Exception):  # it may have been cancelled
        future.set_exception(error)
