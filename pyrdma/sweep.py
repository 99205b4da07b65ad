"""Measures an experiment's points: on all cores in virtual time, one by one in real time.

An interrupted sweep can be resumed. Workers get plain values (an experiment's name, a point's
parameters) and return the content of the point's file, so any `concurrent.futures.Executor` works:
the default pool, or one of `pyrdma.executors`, whose workers may run on other machines.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from . import realtime
from .executors.same_code import Code
from .experiment import Experiment, Point
from .hosts.fleet import Fleet
from .points import Outcome, Report, describe, measure, place_of, settle, tasks_of
from .store import Store, Task
from .workers import Workers

__all__ = ["Sweep"]


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
    fleet
        The hosts that hold the nodes; None: nodes are on this machine.
    """

    def __init__(
        self,
        name: str,
        experiment: Experiment,
        points: list[Point],
        out: Path,
        fleet: Fleet | None = None,
    ):
        self.name = name
        self.experiment = experiment
        self.points = points
        self.out = out
        self.fleet = fleet
        self.fabric = points[0].fabric if points else "sim"
        self._templates = tasks_of(experiment, points, fleet)

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
        repetitions: int | None = None,
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
        repetitions
            How often a point of real time is measured; as the experiment declares if None.
        fresh
            Measure points again that are done.
        report
            The sweep calls it after every point.
        """
        virtual = self.fabric == "sim"
        if virtual and executor is None:
            with Workers(jobs, at_most=len(self.points)) as workers:
                return self.run(executor=workers, fresh=fresh, report=report)
        store = Store(self.out, self.experiment.id, place_of(self.fabric, self.fleet))
        try:
            if not virtual or executor is None:
                return realtime.run(self, store, report, fresh, repetitions)
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
                    futures[executor.submit(measure, *self.arguments(task), code)] = task
                except BrokenProcessPool:
                    lost.append(task)
            pending = set(futures)
            for future in as_completed(pending):
                task = futures.pop(future)  # with its result, which may be long
                if not settle(store, task, future, failed):
                    lost.append(task)
                    continue
                done += 1
                if report is not None:
                    report(done, total, describe(task.point))
        except BaseException:
            kill = getattr(executor, "kill", None)
            if kill is not None:
                kill()
            else:
                for future in futures:
                    future.cancel()
            raise
        return lost

    def on(self, fleet: Fleet) -> Sweep:
        """Return the same sweep on other hosts."""
        return Sweep(self.name, self.experiment, self.points, self.out, fleet)

    def arguments(self, task: Task) -> tuple[str, dict[str, Any], dict[str, str]]:
        """Return the arguments with which a worker measures `task`."""
        names = ("code", "profile_digest", "machine", "testbed", "host")
        return self.name, asdict(task.point), {name: getattr(task, name) for name in names}
