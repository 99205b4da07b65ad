"""Measures an experiment's points: on all cores in virtual time, one by one in real time.

An interrupted sweep can be resumed. Workers get plain values (an experiment's name, a point's
parameters) and return the content of the point's file, so any `concurrent.futures.Executor` works:
the default pool, or one of `pyrdma.executors`, whose workers may run on other machines.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from . import provenance, reach, registry
from .errors import Error
from .executors.same_code import Code, ExecutorError, other_experiment
from .experiment import Experiment, Point
from .files import DiskFull
from .profiles import Profile
from .result import normalise
from .store import Store, Task, point_file, read_point
from .workers import Workers, labelled

__all__ = ["Outcome", "Sweep", "median_interval"]

CONFIDENCE = 0.95
NARROW = 0.05
"""A real-time point is repeated until half the interval of its median is below this share of it."""

Report = Callable[[int, int, str], None]
"""Function of the number of points done, the number of all points, and a line about the last."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a sweep."""

    tasks: list[Task]
    measured: int
    reused: int
    failed: dict[str, str]
    """Reasons by the key of the task."""


def median_interval(
    values: Iterable[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return a confidence interval of the median, from order statistics.

    It needs no assumption about the distribution. None for too few values, which have no interval
    of that confidence: six are needed for 95 %.
    """
    ordered = sorted(values)
    count = len(ordered)
    tail, below = 0.0, 0
    for k in range(count // 2):
        tail += math.comb(count, k) / 2**count
        if 2 * tail > 1 - confidence:
            break
        below = k + 1
    if below == 0:
        return None
    return ordered[below - 1], ordered[count - below]


class Sweep:
    """One experiment's sweep on one fabric, into a results folder.

    Parameters
    ----------
    name
        Id or path of the experiment, for `registry.load`.
    points
        The points to measure, from `Experiment.points`; all on one fabric.
    out
        The results folder.
    """

    def __init__(self, name: str, experiment: Experiment, points: list[Point], out: Path):
        self.name = name
        self.experiment = experiment
        self.points = points
        self.out = out
        self._templates = tasks_of(experiment, points)

    def tasks(self, repetition: int = 0) -> list[Task]:
        """Return the tasks of one repetition, one per point."""
        return [
            replace(task, point=replace(task.point, repetition=repetition))
            for task in self._templates
        ]

    def run(
        self,
        *,
        executor: Executor | None = None,
        jobs: int | None = None,
        fresh: bool = False,
        report: Report | None = None,
    ) -> Outcome:
        """Measure the points that are not done yet.

        Parameters
        ----------
        executor
            Measures points of virtual time; the sweep starts its own `Workers` if None.
        jobs
            Number of processes of these `Workers`; one per core if None.
        fresh
            Measure points again that are done.
        report
            The sweep calls it after every point.
        """
        virtual = not self.points or self.points[0].fabric == "sim"
        if virtual and executor is None:
            with Workers(jobs, at_most=len(self.points)) as workers:
                return self.run(executor=workers, fresh=fresh, report=report)
        store = Store(self.out, self.experiment.id, self.points[0].fabric if self.points else "sim")
        try:
            if not virtual or executor is None:
                return _RealTime(self, store, report, fresh).run()
            return self._virtual(store, executor, report, fresh)
        finally:
            store.close()

    def _virtual(
        self,
        store: Store,
        executor: Executor,
        report: Report | None,
        fresh: bool,
    ) -> Outcome:
        tasks = self.tasks()
        waiting = tasks if fresh else store.pending(tasks)
        reused = len(tasks) - len(waiting)
        failed: dict[str, str] = {}
        # A worker that dies ends its pool, so the sweep tries the lost tasks again. A task that is
        # lost twice runs alone, which tells whether that task kills its worker.
        lost = waiting
        for _ in range(2):
            done = len(tasks) - len(lost)
            lost = self._round(store, lost, executor, report, done, failed)
        for task in lost:
            if self._round(store, [task], executor, report, len(tasks) - 1, failed):
                failed[task.key] = (
                    "the worker process died at each try: it was killed, or had no memory left"
                )
        return Outcome(tasks, len(waiting) - len(failed), reused, failed)

    def _round(
        self,
        store: Store,
        waiting: list[Task],
        executor: Executor,
        report: Report | None,
        done: int,
        failed: dict[str, str],
    ) -> list[Task]:
        """Measure `waiting`; return the tasks that were lost with a pool."""
        if not waiting:
            return []
        total = len(waiting) + done
        lost: list[Task] = []
        futures: dict[Future[bytes], Task] = {}
        # The processes of Workers are of this machine, and load what this program has loaded.
        code = None if isinstance(executor, Workers) else Code.here()
        try:
            for task in waiting:
                try:
                    futures[executor.submit(_measure, *self.arguments(task), code)] = task
                except BrokenProcessPool:
                    lost.append(task)
            pending = set(futures)
            for future in as_completed(pending):
                task = futures.pop(future)  # with its result, which may be long
                if not _settle(store, task, future, failed):
                    lost.append(task)
                    continue
                done += 1
                if report is not None:
                    report(done, total, _describe(task.point))
        except BaseException:
            kill = getattr(executor, "kill", None)
            if kill is not None:
                kill()
            else:
                for future in futures:
                    future.cancel()
            raise
        return lost

    def arguments(self, task: Task) -> tuple[str, dict[str, Any], dict[str, str]]:
        """Return the arguments with which a worker measures `task`."""
        apart = {"code": task.code, "profile_digest": task.profile_digest, "machine": task.machine}
        return self.name, asdict(task.point), apart


class _RealTime:
    """Measures the points of a real-time fabric one at a time, in random order, repeatedly."""

    def __init__(self, sweep: Sweep, store: Store, report: Report | None, fresh: bool) -> None:
        self._sweep = sweep
        self._store = store
        self._report = report
        self._fresh = fresh
        self._failed: dict[str, str] = {}

    def run(self) -> Outcome:
        limit = self._sweep.experiment.max_repetitions
        quick = self._sweep.points[0].quick
        if self._sweep.experiment.target is None and quick:
            limit = min(2, limit)
        every: list[Task] = []
        measured = 0
        open_points = list(range(len(self._sweep.points)))
        for repetition in range(limit):
            tasks = [self._sweep.tasks(repetition)[i] for i in open_points]
            every += tasks
            waiting = list(tasks) if self._fresh else self._store.pending(tasks)
            random.Random(repetition).shuffle(waiting)
            for number, task in enumerate(waiting):
                self._measure(task)
                if self._report is not None:
                    text = f"repetition {repetition + 1}: {_describe(task.point)}"
                    self._report(number + 1, len(waiting), text)
            measured += len(waiting)
            open_points = [i for i in open_points if not self._settled(i, repetition)]
            if self._fresh:
                self._forget_further(repetition, limit, open_points)
        return Outcome(every, measured - len(self._failed), len(every) - measured, self._failed)

    def _forget_further(self, repetition: int, limit: int, open_points: list[int]) -> None:
        """Remove repetitions of an earlier run that this one did not need."""
        tried = [self._sweep.tasks(r) for r in range(repetition + 1)]
        whole = [
            n
            for n in range(len(self._sweep.points))
            if n not in open_points and not any(tasks[n].key in self._failed for tasks in tried)
        ]
        for later in range(repetition + 1, limit):
            tasks = self._sweep.tasks(later)
            self._store.forget(tasks[n] for n in whole)

    def _measure(self, task: Task) -> None:
        future: Future[bytes] = Future()
        try:
            future.set_result(_measure(*self._sweep.arguments(task)))
        except Exception as error:
            future.set_exception(error)
        _settle(self._store, task, future, self._failed)

    def _settled(self, index: int, repetition: int) -> bool:
        """Return whether a point needs no further repetition."""
        keys = [self._sweep.tasks(r)[index].key for r in range(repetition + 1)]
        if any(key in self._failed for key in keys):
            return True
        target = self._sweep.experiment.target
        if target is None:
            return False
        values: dict[str, list[float]] = {}
        for key in keys:
            for row in read_point(self._store.path(key)).rows:
                if row.metric == target:
                    values.setdefault(str(row.labels), []).append(row.value)
        if not values:
            raise Error(f"{self._sweep.name}: target {target!r} is not a metric that it measures")
        return all(_narrow(found) for found in values.values())


def _narrow(values: list[float]) -> bool:
    interval = median_interval(values)
    if interval is None:
        return False
    return (interval[1] - interval[0]) / 2 <= NARROW * abs(statistics.median(values))


def _settle(store: Store, task: Task, future: Future[bytes], failed: dict[str, str]) -> bool:
    """Store the point of a task that has ended, or record why it failed.

    Return False when its process died. An error that every further point would have, too, ends the
    sweep: a full disk, a worker with other code, an executor that has failed.
    """
    error = future.exception()
    if error is None:
        try:
            store.put(task, future.result())
        except ValueError as problem:
            failed[task.key] = f"the worker returned no point that can be stored: {problem}"
        return True
    if isinstance(error, BrokenProcessPool):
        return False
    if isinstance(error, (DiskFull, ExecutorError)):
        raise error
    reason = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    failed[task.key] = reason
    return True


@labelled(lambda name, point, *_: f"{name}: {_describe(Point(**point))}")
def _measure(
    name: str, point: dict[str, Any], apart: dict[str, str], code: Code | None = None
) -> bytes:
    """Measure one point in a worker, if that has this code; return the content of its file."""
    task = Task(Point(**point), **apart)
    experiment = registry.load(name) if code is None else _load_same(name, task, code)
    if experiment.measure is None:
        raise Error(f"{name} has nothing to measure")
    try:
        measured = experiment.measure(task.point)
    except DiskFull:
        raise
    except Exception as error:
        raise Error(registry.located(error, registry.source(name))) from error
    return point_file(task, normalise(measured))


def _load_same(name: str, task: Task, code: Code) -> Experiment:
    """Load an experiment in a worker, which must have the code and profile of `task`."""
    code.check()
    try:
        experiment = registry.load(name)
        found = tasks_of(experiment, [task.point])
    except Error as error:
        raise other_experiment(name, f"cannot be loaded ({error})") from error
    if found != [task]:
        raise other_experiment(name)
    return experiment


def tasks_of(experiment: Experiment, points: Iterable[Point]) -> list[Task]:
    """Return the tasks that measure `points` with today's code and profiles, on this machine."""
    code = reach.digest(experiment.measure)
    profiles: dict[tuple[str, str], str] = {}
    tasks = []
    for point in points:
        simulated = point.fabric == "sim"
        testbed = point.profile, str(sorted(point.overrides.items()))
        if simulated and testbed not in profiles:
            profiles[testbed] = Profile.load(point.profile, point.overrides).digest()
        digest = profiles[testbed] if simulated else ""
        tasks.append(Task(point, code, digest, "" if simulated else provenance.machine()))
    return tasks


def _describe(point: Point) -> str:
    return ", ".join(f"{key}={value}" for key, value in point.params.items())
