"""Run the same workloads on this machine's real fabric and in ``sim``, and compare the numbers.

The real fabric measures every entry (`validation`) in rounds, in a new random order each, so that
a slow minute of the machine does not fall on one entry. Every measurement is stored as
``pyrdma run`` stores points, and an interrupted command continues where it stopped. Measurements
of the real fabric do not depend on the profile, so another profile costs only its simulation.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from . import devices, provenance, systems, workload
from .arguments import shown
from .errors import Error, InvalidArgument, Unavailable, nearest
from .experiment import Experiment, Point
from .fabrics import fabric_problem
from .files import DiskFull, write_json
from .points import Report, median_interval, tasks_of
from .profiles import Profile
from .result import Result, Row, normalise
from .store import Store, Task, point_file, read_point
from .validation import Validation
from .workload import VerbsLoad

__all__ = ["BOUNDS", "Comparison", "choose", "compare", "left_out", "measure", "validations"]

BOUNDS = {"shm": 0.25, "verbs": 0.40}
"""Largest relative error of a prediction, by the fabric that it is compared with."""

REAL_S = {"shm": 0.2, "verbs": 0.5}
SIMULATED_S, SLOW_S, FEW_OPS = 0.005, 0.1, 1000
WARMUP = 0.2
"""Measured times, and the share of them that passes before. A simulation with few operations in
its time takes the time of slow fabrics.
"""
TIME_OF_OTHERS, OTHERS, ATTEMPTS = "time_of_others", 0.05, 3
"""A measurement is repeated while other programs take more than this share of the processors. A
disturbed one counts only if all are.
"""

_Op = Literal["write", "read", "send", "fetch_add"]


@dataclass(frozen=True)
class Comparison:
    """One entry in both worlds; its fields are those of ``pyrdma validate --json``.

    Attributes
    ----------
    measured, low, high
        Median on the real fabric, and its 95 % interval (the least and the largest value of fewer
        than six repetitions).
    values
        Number of repetitions that the median is of.
    error
        (simulated - measured) / measured.
    problem
        The reason why one of the worlds has no number; empty otherwise.
    """

    name: str
    metric: str
    unit: str
    bound: float
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    values: int = 0
    simulated: float | None = None
    problem: str = ""

    @property
    def error(self) -> float | None:
        """The relative error of the prediction."""
        if self.measured is None or self.simulated is None or self.measured <= 0:
            return None
        return self.simulated / self.measured - 1

    @property
    def within(self) -> bool:
        """Whether the error is within the bound."""
        return self.error is not None and abs(self.error) <= self.bound

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {**asdict(self), "error": self.error, "within": self.within}


def validations() -> list[Validation]:
    """Return raw operations, in sizes and depths that calibration leaves out, and the systems'."""
    sizes: dict[_Op, int] = {"write": 256, "read": 256, "fetch_add": 8, "send": 256}
    both_ways: tuple[_Op, ...] = ("write", "send")
    latencies = [
        Validation(
            f"fabric/{op}_{sizes[op]}_pingpong",
            VerbsLoad(
                op=op, size=sizes[op], depth=1, mode="latency", measure="pingpong", clock_every=64
            ),
            f"{op}_latency_mean",
            "ns",
        )
        for op in both_ways
    ]
    rates = [
        Validation(f"fabric/{op}_{size}_depth_{depth}", VerbsLoad(op=op, size=size, depth=depth))
        for op, size in sizes.items()
        for depth in (1, 16)
    ]
    of_systems = [v for part in systems.parts("validations") for v in part.validations()]
    return [*latencies, *rates, *of_systems]


def choose(prefixes: Iterable[str] = ()) -> list[Validation]:
    """Return the entries whose names begin with one of `prefixes`.

    Without any they are all but those of `left_out`.
    """
    every, wanted = validations(), tuple(prefixes)
    for prefix in wanted:
        if not any(v.name.startswith(prefix) for v in every):
            names = [v.name for v in every]
            raise InvalidArgument(
                f"--only {shown(prefix)} selects nothing{nearest(prefix, names)}; "
                f"the entries are {', '.join(names)}"
            )
    if not wanted:
        too_large = {v.name for v in left_out()}
        return [v for v in every if v.name not in too_large]
    return [v for v in every if v.name.startswith(wanted)]


def left_out() -> list[Validation]:
    """Return the entries that need more than 2 cores, and more than this process may use."""
    cores = max(2, provenance.usable_cores())
    return [v for v in validations() if v.cores > cores]


def measure(point: Point) -> Result:
    """Run a point's workload on its nodes."""
    if point.fabric != "sim":
        return _run(point, REAL_S[point.fabric])
    found = _run(point, SIMULATED_S)
    return found if found.value("ops") >= FEW_OPS else _run(point, SLOW_S)


def _run(point: Point, duration_s: float) -> Result:
    settings = dict(point.params)
    kind = getattr(workload, str(settings.pop("workload")))
    nodes, device = int(settings.pop("nodes")), str(settings.pop("device", ""))
    if any(f.name == "warmup_ns" for f in fields(kind)):
        settings["warmup_ns"] = round(duration_s * WARMUP * 1e9)
    load = kind(**settings)
    options = {"device": device} if device else {}
    with point.cluster(nodes=nodes, **options) as cluster:
        return cluster.run(load, duration_s=duration_s)


def check_machine(fabric: str, device: str, entries: Sequence[Validation]) -> None:
    """Raise unless the real fabric can run every entry with a core for each busy thread."""
    if fabric not in BOUNDS:
        raise InvalidArgument(
            f"--fabric is {shown(fabric)}, and a simulation cannot validate itself; "
            f"give a real fabric: {', '.join(BOUNDS)}"
        )
    if device and fabric != "verbs":
        raise InvalidArgument(
            f"--device is {shown(device)}, and {fabric} has no devices; leave it out, or give "
            "--fabric verbs"
        )
    problem = fabric_problem(fabric)
    if problem:
        raise Unavailable(f"fabric {fabric}: {problem}")
    if device:
        devices.choose(devices.Wish.parse(device))
    cores = provenance.usable_cores()
    for entry in entries:
        if entry.cores > cores:
            raise Unavailable(
                f"{entry.name} needs {entry.cores} cores ({entry.nodes} nodes of "
                f"{entry.threads} busy threads), and this process may use {cores}; give it more "
                "(taskset, the cgroup), or choose entries with --only"
            )


def compare(
    profile: str,
    entries: Sequence[Validation],
    fabric: str,
    out: Path,
    *,
    device: str = "",
    repetitions: int = 7,
    fresh: bool = False,
    report: Report | None = None,
) -> list[Comparison]:
    """Measure `entries` in both worlds, store the numbers below `out`, and compare them.

    Raises
    ------
    InvalidArgument, Unavailable
        The profile, the fabric or the device is missing, or the machine has too few cores.
    """
    check_machine(fabric, device, entries)
    loaded = Profile.load(profile)
    for entry in entries:
        if entry.nodes > loaded.nodes:
            raise InvalidArgument(
                f"{entry.name} needs {entry.nodes} nodes, and {loaded.path} has nodes = "
                f"{loaded.nodes}; correct it, or choose entries with --only"
            )
    run = _Run(out, report, fresh, total=len(entries) * (1 + repetitions))
    params = [{**e.params(), **({"device": device} if device else {})} for e in entries]
    for entry, settings in zip(entries, params, strict=True):
        simulated = {k: v for k, v in settings.items() if k != "device"}
        run.point(entry, Point(entry.name, simulated, "sim", str(loaded.path), quick=False))
    for repetition in range(repetitions):
        pairs = list(zip(entries, params, strict=True))
        random.Random(repetition).shuffle(pairs)
        for entry, settings in pairs:
            point = Point(entry.name, settings, fabric, repetition=repetition, quick=False)
            run.point(entry, point)
    found = [run.comparison(entry, fabric) for entry in entries]
    write_json(
        out / f"{fabric}.json",
        {
            "fabric": fabric,
            "device": device,
            "profile": {"name": loaded.name, "values": loaded.values()},
            "entries": [c.as_dict() for c in found],
            "provenance": provenance.collect(),
        },
    )
    return found


def _undisturbed(point: Point) -> Result:
    """Measure a point, and again while other programs take much of the processors meanwhile."""
    for attempt in range(ATTEMPTS):
        begin = time.perf_counter(), _time_of_others()
        result = normalise(measure(point))
        took = (time.perf_counter() - begin[0]) * provenance.usable_cores()
        share = max(0.0, _time_of_others() - begin[1]) / took
        if not _is_disturbed(point.fabric, share) or attempt == ATTEMPTS - 1:
            break
    return replace(result, rows=[*result.rows, Row(TIME_OF_OTHERS, share, "ratio")])


def _is_disturbed(fabric: str, share: float) -> bool:
    # The kernel's work for a device counts as others', and nothing disturbs virtual time.
    return fabric == "shm" and share > OTHERS


def _time_of_others() -> float:
    """Return the CPU time that other programs have used since the start of the machine."""
    with Path("/proc/stat").open(encoding="ascii") as lines:
        user, nice, system, _, _, irq, softirq, steal = map(int, lines.readline().split()[1:9])
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return busy - sum(os.times()[:4])


class _Run:
    """Measures points that are not stored yet, and remembers the values of all."""

    def __init__(self, out: Path, report: Report | None, fresh: bool, total: int) -> None:
        self._out, self._report, self._fresh, self._total = out, report, fresh, total
        self._done = 0
        self._values: dict[tuple[str, bool], list[tuple[float, bool]]] = {}
        self._problems: dict[str, str] = {}

    def point(self, entry: Validation, point: Point) -> None:
        """Measure a point, unless it is stored or the entry has already failed."""
        self._done += 1
        if self._report is not None:
            self._report(self._done, self._total, f"{entry.name} on {point.fabric}")
        if entry.name in self._problems:
            return
        as_experiment = Experiment(entry.name, entry.name, point.profile, measure)
        (task,) = tasks_of(as_experiment, [point])
        try:
            value, disturbed = self._value(entry, task)
        except DiskFull:
            raise
        except Error as error:
            self._problems[entry.name] = f"{point.fabric}: {error}"
            return
        values = self._values.setdefault((entry.name, point.fabric == "sim"), [])
        values.append((value, disturbed))

    def _value(self, entry: Validation, task: Task) -> tuple[float, bool]:
        """Return a point's number, and whether other programs have disturbed it."""
        with closing(Store(self._out, entry.name, task.point.fabric)) as store:
            if self._fresh or not store.is_measured(task):
                store.put(task, point_file(task, _undisturbed(task.point)))
            rows = {row.metric: row.value for row in read_point(store.path(task.key)).rows}
        if entry.metric not in rows:
            raise Error(f"{entry.name} has no metric {entry.metric!r}: {', '.join(rows)}")
        return rows[entry.metric], _is_disturbed(task.point.fabric, rows[TIME_OF_OTHERS])

    def comparison(self, entry: Validation, fabric: str) -> Comparison:
        """Return the entry's numbers of both worlds."""
        head = (entry.name, entry.metric, entry.unit, BOUNDS[fabric])
        if entry.name in self._problems:
            return Comparison(*head, problem=self._problems[entry.name])
        every, ((simulated, _),) = self._values[entry.name, False], self._values[entry.name, True]
        calm = [value for value, disturbed in every if not disturbed]
        real = calm or [value for value, _ in every]
        low, high = median_interval(real) or (min(real), max(real))
        return Comparison(*head, median(real), low, high, len(real), simulated)
