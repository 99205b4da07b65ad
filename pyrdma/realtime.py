"""Measures the points of a real-time fabric: on this machine, or on the hosts of a fleet."""

from __future__ import annotations

import logging
import random
import statistics
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from .errors import Error, HostLost, NodeEnded
from .hosts.fleet import TooFewSlots, using
from .store import Store, Task, read_point

if TYPE_CHECKING:
    from .sweep import Sweep
from .points import Outcome, Report, describe, measure, median_interval, settle

__all__ = ["run"]

NARROW = 0.05
"""A point is repeated until half the interval of its median is below this share of it."""

_log = logging.getLogger("pyrdma")


def run(
    sweep: Sweep,
    store: Store,
    report: Report | None,
    fresh: bool,
    repetitions: int | None = None,
) -> Outcome:
    """Measure a sweep. Over ``shm`` every host of a fleet measures all of it, at the same time.

    A point is measured `repetitions` times; if None, as its experiment declares.
    """
    if sweep.fleet is None or sweep.fabric != "shm":
        return _Machine(sweep, store, report, fresh, repetitions).run()
    if report is not None:
        report = _one_at_a_time(report)
    alone = [sweep.on(sweep.fleet.subset(host)) for host in sweep.fleet.hosts]
    machines = [_Machine(s, store, report, fresh, repetitions) for s in alone]
    with ThreadPoolExecutor(len(alone)) as pool:
        futures = [pool.submit(_named_at_once, machine) for machine in machines]
    outcomes = [future.result() for future in futures]  # raises the first host's error
    return Outcome(
        [task for o in outcomes for task in o.tasks],
        sum(o.measured for o in outcomes),
        sum(o.reused for o in outcomes),
        {key: reason for o in outcomes for key, reason in o.failed.items()},
        {key: reason for o in outcomes for key, reason in o.skipped.items()},
    )


def _named_at_once(machine: _Machine) -> Outcome:
    """Measure on one host of several; name it as soon as it is lost, while the others go on."""
    try:
        return machine.run()
    except HostLost as error:
        _log.warning("pyrdma: %s; the other hosts finish their points", error)
        raise


def _one_at_a_time(report: Report) -> Report:
    lock = threading.Lock()

    def locked(done: int, total: int, text: str) -> None:
        with lock:
            report(done, total, text)

    return locked


class _Machine:
    """Measures points one at a time, in random order, repeatedly."""

    def __init__(
        self,
        sweep: Sweep,
        store: Store,
        report: Report | None,
        fresh: bool,
        repetitions: int | None,
    ) -> None:
        self._sweep = sweep
        self._store = store
        self._report = report
        self._fresh = fresh
        self._repetitions = repetitions
        self._stored = store.repetitions() if fresh else 0
        self._failed: dict[str, str] = {}
        self._skipped: dict[str, str] = {}

    def run(self) -> Outcome:
        """Measure the points that are not done yet."""
        with using(self._sweep.fleet):
            return self._run()

    def _run(self) -> Outcome:
        limit = self._repetitions or self._sweep.experiment.max_repetitions
        quick = self._sweep.points[0].quick
        if self._target is None and self._repetitions is None and quick:
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
                    text = f"repetition {repetition + 1}: {describe(task.point)}"
                    self._report(number + 1, len(waiting), text)
            measured += len(waiting)
            open_points = [i for i in open_points if not self._settled(i, repetition)]
            if self._fresh:
                self._forget_further(repetition, [] if repetition + 1 == limit else open_points)
        lacking = len(self._failed) + len(self._skipped)
        reused = len(every) - measured
        return Outcome(every, measured - lacking, reused, self._failed, self._skipped)

    @property
    def _target(self) -> str | None:
        """Metric whose interval ends the repetitions; None if their number is given."""
        return self._sweep.experiment.target if self._repetitions is None else None

    def _forget_further(self, repetition: int, open_points: list[int]) -> None:
        """Remove repetitions of an earlier run that this one did not need."""
        tried = [self._sweep.tasks(r) for r in range(repetition + 1)]
        whole = [
            n
            for n in range(len(self._sweep.points))
            if n not in open_points and not any(self._is_lacking(tasks[n]) for tasks in tried)
        ]
        for later in range(repetition + 1, self._stored):
            tasks = self._sweep.tasks(later)
            self._store.forget(tasks[n] for n in whole)

    def _measure(self, task: Task) -> None:
        try:
            try:
                future = _measured(self._sweep, task)
            except NodeEnded as error:
                _log.warning("pyrdma: %s: %s; measured once more", self._sweep.name, error)
                future = _measured(self._sweep, task)
        except NodeEnded as error:
            self._failed[task.key] = f"twice in a row: {error}"
        except TooFewSlots as error:
            self._skipped[task.key] = str(error)
        else:
            settle(self._store, task, future, self._failed)

    def _is_lacking(self, task: Task) -> bool:
        return task.key in self._failed or task.key in self._skipped

    def _settled(self, index: int, repetition: int) -> bool:
        """Return whether a point needs no further repetition."""
        keys = [self._sweep.tasks(r)[index].key for r in range(repetition + 1)]
        if any(key in self._failed or key in self._skipped for key in keys):
            return True
        target = self._target
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


def _measured(sweep: Sweep, task: Task) -> Future[bytes]:
    """Measure a point with fresh nodes; raise errors that are no result."""
    future: Future[bytes] = Future()
    try:
        future.set_result(measure(*sweep.arguments(task)))
    except (NodeEnded, TooFewSlots):
        raise
    except Exception as error:
        future.set_exception(error)
    return future


def _narrow(values: list[float]) -> bool:
    interval = median_interval(values)
    if interval is None:
        return False
    return (interval[1] - interval[0]) / 2 <= NARROW * abs(statistics.median(values))
