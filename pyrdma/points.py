"""One point of a sweep: its task, its measurement in whatever process, its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

from . import provenance, reach, registry
from .conditions import collect
from .errors import Error, HostLost, NodeEnded
from .executors.same_code import Code, ExecutorError, other_experiment
from .experiment import Experiment, Point
from .files import DiskFull
from .hosts.fleet import Fleet, TooFewSlots
from .profiles import Profile
from .result import normalise
from .store import Store, Task, point_file
from .workers import labelled

__all__ = [
    "CONFIDENCE",
    "Outcome",
    "Report",
    "describe",
    "measure",
    "median_interval",
    "needed_values",
    "place_of",
    "settle",
    "tasks_of",
]

CONFIDENCE = 0.95

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
    skipped: dict[str, str] = field(default_factory=dict)
    """Reasons by the key of the task: the hosts have too few slots."""


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


def needed_values(confidence: float) -> int:
    """Return the least number of values whose median has an interval of this confidence."""
    return math.ceil(1 - math.log2(1 - confidence))


def settle(store: Store, task: Task, future: Future[bytes], failed: dict[str, str]) -> bool:
    """Store the point of a task that has ended, or record why it failed.

    Return False when its process died. An error that every further point would have, too, ends the
    sweep: a full disk, a lost host, a worker with other code, an executor that has failed.
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
    if isinstance(error, (DiskFull, ExecutorError, HostLost)):
        raise error
    reason = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    failed[task.key] = reason
    return True


@labelled(lambda name, point, *_: f"{name}: {describe(Point(**point))}")
def measure(
    name: str, point: dict[str, Any], apart: dict[str, str], code: Code | None = None
) -> bytes:
    """Measure one point in a worker, if that has this code; return the content of its file."""
    task = Task(Point(**point), **apart)
    experiment = registry.load(name) if code is None else _load_same(name, task, code)
    if experiment.measure is None:
        raise Error(f"{name} has nothing to measure")
    with collect() as conditions:
        try:
            measured = experiment.measure(task.point)
        except (DiskFull, HostLost, NodeEnded, TooFewSlots):
            raise
        except Exception as error:
            raise Error(registry.located(error, registry.source(name))) from error
    try:
        result = normalise(measured)
    except Error as error:
        place = registry.beginning(experiment.measure, registry.source(name))
        raise Error(f"{error} ({place})") from None
    return point_file(task, result, conditions)


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


def place_of(fabric: str, fleet: Fleet | None) -> str:
    """Return the name of the folder with the results: FABRIC, or FABRIC@TESTBED."""
    return fabric if fleet is None else f"{fabric}@{fleet.testbed}"


def tasks_of(
    experiment: Experiment, points: Iterable[Point], fleet: Fleet | None = None
) -> list[Task]:
    """Return the tasks that measure `points` with today's code and profiles.

    Real-time points are measured on this machine, or on the hosts of `fleet`.
    """
    code = reach.digest(experiment.measure)
    profiles: dict[tuple[str, str], str] = {}
    tasks = []
    for point in points:
        simulated = point.fabric == "sim"
        testbed = point.profile, str(sorted(point.overrides.items()))
        if simulated and testbed not in profiles:
            profiles[testbed] = Profile.load(point.profile, point.overrides).digest()
        if simulated:
            tasks.append(Task(point, code, profiles[testbed]))
        elif fleet is None:
            tasks.append(Task(point, code, machine=provenance.machine()))
        else:
            tasks.append(Task(point, code, **fleet.labels(point.fabric)))
    return tasks


def describe(point: Point) -> str:
    """Return the parameters of a point as a line."""
    return ", ".join(f"{key}={value}" for key, value in point.params.items())
