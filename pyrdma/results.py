"""Stored results as tables: everything in a folder, a whole sweep for the claims, a figure's data.

Newer measurements, those of later runs, supersede older ones of the same point: same parameters,
profile, overrides, seed, repetition and length, and in real time the same machine. Other seeds and
repetitions of that point by older code go with it, so that a median is over one code. All files
stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._newest import RUN, newest, pairs, same_code, subject
from .arguments import FilePath, checked
from .data import COLUMNS, NotEvaluated
from .errors import Error, InvalidArgument
from .experiment import ID, Experiment, Point
from .places import Place
from .points import tasks_of
from .result import Latency
from .store import Measurement, Task, read_folder
from .units import digits

if TYPE_CHECKING:
    import pandas as pd

    from .basis import Basis
    from .table import Table

__all__ = [
    "Stale",
    "by_value",
    "check_folder",
    "count_stale",
    "in_figure",
    "load",
    "newest",
    "of_today",
    "places",
    "stale_note",
    "stored_in",
    "table",
    "tables",
    "tables_of_today",
    "whole_sweep",
]


class Stale(NotEvaluated):
    """Other code than today's measured the data; the text has the command that renews them."""


@checked
def load(
    path: FilePath = "results", *, histograms: bool = False, superseded: bool = False
) -> Table:
    """Return all measurements in a folder as one tidy table, with `ci` for confidence intervals.

    Parameters
    ----------
    path
        A results folder, or a part of one: of a paper, an experiment, a fabric.
    histograms
        Return the latencies instead: a row for each point and operation, whose column
        ``latency`` holds a `Latency` with percentiles, mean, maximum and count.
    superseded
        Also return measurements that newer code has measured again.

    Returns
    -------
    Table
        A pandas table with one number per row. Columns are the parameters and labels of all
        experiments in the folder (empty where an experiment has none) and `pyrdma.data.COLUMNS`,
        which the README describes. Rows of the scope ``total`` are numbers of the whole cluster,
        with node and thread -1.

    Raises
    ------
    InvalidArgument
        The folder does not exist, or holds no measurement.

    Warns
    -----
    DamagedFile
        A file is damaged; the rest is returned.
    """
    found = stored_in(path)
    if not superseded:
        found = newest(found)
    found.sort(key=by_value)
    return latencies(found) if histograms else table(found)


def stored_in(path: str | Path, name: str = "path") -> list[Measurement]:
    """Return every measurement in a folder; `name` is the argument that an error names."""
    root = check_folder(path, name)
    found: list[Measurement] = []
    for depth in range(4):
        for folder in sorted(root.glob("/".join(["*"] * depth + ["points"]))):
            if folder.is_dir():
                found += read_folder(folder)
    if not found:
        raise InvalidArgument(
            f"{name} {str(root)!r} holds no measurement; 'pyrdma run ID --out {root}' adds some"
        )
    return found


def check_folder(path: str | Path, name: str = "out") -> Path:
    """Return the path of a results folder.

    Raises
    ------
    InvalidArgument
        It is no folder.
    """
    root = Path(path)
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise InvalidArgument(
            f"the results folder {name} {str(root)!r} {problem}; 'pyrdma run ID --out {root}' "
            "makes it"
        )
    return root


def places(out: Path, pattern: str = "*/*/*") -> Iterator[tuple[str, Path]]:
    """Yield the experiments with points, each with each of its folders PAPER/FIGURE/PLACE."""
    for points in sorted(out.glob(f"{pattern}/points")):
        folder = points.parent
        name = folder.parent.relative_to(out).as_posix()
        if ID.fullmatch(name) and Place.is_folder(folder.name):
            yield name, folder


def tables(out: Path, experiment: str, folder: str = "*") -> dict[Place, list[Measurement]]:
    """Return the stored measurements of an experiment, in all or in one folder, by place."""
    found: dict[Place, list[Measurement]] = {}
    for name, path in places(out, f"{experiment}/{folder}"):
        for m in read_folder(path / "points"):
            if m.identity["experiment"] == name:
                place = replace(Place.of(path.name), host=m.identity.get("host", ""))
                found.setdefault(place, []).append(m)
    return dict(sorted(found.items()))


def tables_of_today(
    out: Path, experiment: Experiment, folder: str = "*"
) -> dict[Place, list[Measurement]]:
    """Return `tables` without what today's code has measured, too; see `of_today`."""
    found = tables(out, experiment.id, folder)
    return {place: of_today(experiment, stored) for place, stored in found.items()}


def by_value(m: Measurement) -> tuple[Any, ...]:
    """Order measurements by experiment, fabric, parameters, seed and repetition."""
    params = [(name, type(v).__name__, v) for name, v in m.identity["params"].items()]
    same = ("experiment", "fabric", "profile")
    return (
        *(m.identity[n] for n in same),
        params,
        *(m.identity[n] for n in ("seed", "repetition")),
    )


def of_today(experiment: Experiment, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Leave out measurements by other code of points that today's code has measured, too.

    They may be newer: code that is changed, and changed back, measures nothing again.
    """
    try:
        current = _are_current(experiment, measurements)
    except Error:  # the file of a profile is gone
        return list(measurements)
    about = [subject(m.identity, *RUN, "quick") for m in measurements]
    today = {point for point, is_current in zip(about, current, strict=True) if is_current}
    found = zip(measurements, about, current, strict=True)
    return [m for m, point, is_current in found if is_current or point not in today]


def table(measurements: Sequence[Measurement]) -> Table:
    """Return the numbers of measurements as tidy rows; see `load` for the columns."""
    import pandas as pd

    from .table import Table

    by_experiment: dict[str, list[dict[str, Any]]] = {}
    for m in measurements:
        by_experiment.setdefault(m.identity["experiment"], []).extend(_rows(m))
    # A parameter's type is that of its experiment, whatever others call by the same name.
    frames = [_ordered(pd.DataFrame(rows), COLUMNS) for rows in by_experiment.values()]
    labels = [c for frame in frames for c in frame.columns if c not in COLUMNS]
    columns = ["experiment", *dict.fromkeys(labels), *(c for c in COLUMNS if c != "experiment")]
    if len(frames) == 1:
        return Table(frames[0])
    joined = [frame.astype(object) for frame in frames]
    return Table(pd.concat(joined, ignore_index=True).reindex(columns=columns).infer_objects())


def latencies(measurements: Sequence[Measurement]) -> Table:
    """Return the latencies of measurements; see `load`."""
    import pandas as pd

    from .table import Table

    rows = [
        {**_common(m), "operation": operation, "latency": Latency(payloads)}
        for m in measurements
        for operation, payloads in m.histograms.items()
    ]
    about = [c for c in COLUMNS if c not in ("scope", "node", "thread", "metric", "value", "unit")]
    return Table(_ordered(pd.DataFrame(rows), [*about, "operation", "latency"]))


def _ordered(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Put the columns of parameters between the experiment and the others."""
    labels = [c for c in frame.columns if c not in columns]
    frame = frame.reindex(
        columns=["experiment", *labels, *(c for c in columns if c != "experiment")]
    )
    for name in labels:
        if frame[name].map(type).nunique() > 1:
            frame[name] = _one_type(frame[name])
    return frame


def _one_type(column: pd.Series) -> pd.Series:
    """Make a column of mixed types storable: numbers if all values are numbers, otherwise text."""
    import pandas as pd

    try:
        return pd.to_numeric(column)
    except (TypeError, ValueError):
        return column.map(lambda v: v if v is None or v != v else str(v))


def _common(measurement: Measurement) -> dict[str, Any]:
    identity = measurement.identity
    same = ("experiment", "profile", "fabric", "seed", "repetition", "quick", "code")
    return {
        **identity["params"],
        **{name: identity[name] for name in same},
        "overrides": overrides_text(identity["overrides"]),
        "clock": measurement.clock,
        "machine": measurement.machine,
        "testbed": identity.get("testbed", ""),
        "host": identity.get("host", ""),
        "flags": ", ".join(measurement.flags),
        "workloads": json.dumps(measurement.workloads),
    }


def overrides_text(overrides: Mapping[str, float]) -> str:
    """Return overridden profile parameters as ``key=value`` with commas; empty for none."""
    return ", ".join(f"{key}={digits(value)}" for key, value in sorted(overrides.items()))


def _rows(measurement: Measurement) -> Iterator[dict[str, Any]]:
    common = _common(measurement)
    total = {"scope": "total", "node": -1, "thread": -1}
    for row in measurement.rows:
        number = {"metric": row.metric, "value": row.value, "unit": row.unit}
        yield {**common, **row.labels, **total, **number}
    for sample in measurement.samples:
        if sample.node >= 0:  # the rows have the numbers of the whole cluster
            scope = "node" if sample.thread < 0 else "thread"
            yield {**common, "scope": scope, **asdict(sample)}


def whole_sweep(
    experiment: Experiment,
    measurements: Sequence[Measurement],
    place: Place,
    out: Path,
    basis: Basis | None = None,
) -> list[Measurement]:
    """Return a whole sweep that today's code measured: the full one if there is one, or the quick.

    Runs with overrides, with another profile, or with values that the axes do not have are left
    out. Every seed whose sweep is whole is returned; in real time, of one machine. With a `basis`,
    its code and its profiles take the place of today's.

    Raises
    ------
    Stale
        A sweep is whole, but other code or another profile measured some of its points.
    NotEvaluated
        Points are missing; the text has the command that measures them.
    """
    command = f"'pyrdma run {experiment.id}"
    if place.fabric != experiment.fabrics[0]:
        command += f" --fabric {place.fabric}"
    if place.testbed:
        command += " --inventory HOSTS.yml"
    if str(out) != "results":
        command += f" --out {out}"
    problem: NotEvaluated | None = None
    for quick in (False, True):
        tasks = tasks_of(experiment, list(experiment.points(quick=quick, fabric=place.fabric)))
        if basis is not None:
            tasks = [basis.current(task) for task in tasks]
        wanted = {_place(task.identity): task for task in tasks}
        declared = [m for m in measurements if _place(m.identity) in wanted]
        fresh = [m for m in declared if same_code(m, wanted[_place(m.identity)])]
        whole = _whole(newest(fresh), wanted)
        if whole:
            order = {place[0]: n for n, place in enumerate(wanted)}
            return _in_order(whole, order)
        again = command + ("'" if quick else " --full'")
        if _whole(declared, wanted):
            current = {_place(m.identity) for m in fresh}
            problem = Stale(
                f"other code measured {len(wanted) - len(current)} of {len(wanted)} points; "
                f"{again} measures them again"
            )
        elif problem is None and declared:
            there = len({_place(m.identity) for m in declared})
            problem = NotEvaluated(f"{there} of {len(wanted)} points are measured; {again}")
    if problem is None and measurements:
        changed = {overrides_text(m.identity["overrides"]) for m in measurements}
        changed |= {f"profile {m.identity['profile']}" for m in measurements} - {
            f"profile {experiment.profile}"
        }
        problem = NotEvaluated(
            "the points were measured with other settings: "
            + "; ".join(sorted(changed - {""}) or ["values beside the axes"])
        )
    raise problem or NotEvaluated(f"no {place} results yet; run {command}'")


def _spot(identity: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the place of a point in a figure: its parameters and its profile."""
    return pairs(identity["params"]), identity["profile"]


def _place(identity: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the place of a point in a sweep: as in a figure, with its length and overrides."""
    return _spot(identity), identity["quick"], pairs(identity["overrides"])


def count_stale(experiment: Experiment, measurements: Sequence[Measurement]) -> int:
    """Return how many measurements other code than today's, or another profile, made."""
    return _are_current(experiment, measurements).count(False)


def _are_current(experiment: Experiment, measurements: Sequence[Measurement]) -> list[bool]:
    """Return for each measurement whether today's code and profile made it."""
    fields = ("params", "fabric", "profile", "overrides", "seed", "repetition", "quick")
    points = [Point(experiment.id, **{f: m.identity[f] for f in fields}) for m in measurements]
    tasks = tasks_of(experiment, points)
    return [same_code(m, t) for m, t in zip(measurements, tasks, strict=True)]


def stale_note(experiment: Experiment, measurements: Sequence[Measurement]) -> str:
    """Return a word about measurements by other code; an empty text if there are none."""
    try:
        stale = count_stale(experiment, measurements)
    except Error as error:
        return str(error)  # the file of a profile is gone
    if not stale:
        return ""
    return f"other code measured {stale} of the {len(measurements)} points in the figure"


def _whole(
    measurements: Iterable[Measurement], wanted: Mapping[tuple[Any, ...], Task]
) -> list[Measurement]:
    """Return the measurements of every seed that covers `wanted`, of the machine measured last."""
    groups: dict[tuple[str, int], list[Measurement]] = {}
    for m in measurements:
        groups.setdefault((m.identity["machine"], m.identity["seed"]), []).append(m)
    whole = {
        group: found
        for group, found in groups.items()
        if {_place(m.identity) for m in found} == wanted.keys()
    }
    if not whole:
        return []
    last = max(whole, key=lambda group: max(m.order for m in whole[group]))
    return [m for group, found in sorted(whole.items()) if group[0] == last[0] for m in found]


def in_figure(
    measurements: Iterable[Measurement], points: Sequence[Point], overrides: Mapping[str, float]
) -> list[Measurement]:
    """Return the measurements of a figure's `points` under `overrides`, in the points' order.

    Full measurements replace quick ones of the same parameters, unless other code measured these
    later. In real time the machine that measured last replaces others.
    """
    order = {_spot(Task(point, "").identity): n for n, point in reversed(list(enumerate(points)))}
    chosen = [
        m
        for m in newest(measurements)
        if _spot(m.identity) in order and m.identity["overrides"] == dict(overrides)
    ]
    if not chosen:
        return []
    chosen.sort(key=lambda m: m.order)
    machine = chosen[-1].identity["machine"]
    chosen = [m for m in chosen if m.identity["machine"] == machine]
    last = {_spot(m.identity): m for m in chosen}
    chosen = [m for m in chosen if same_code(m, last[_spot(m.identity)])]
    full = {_spot(m.identity) for m in chosen if not m.identity["quick"]}
    return _in_order(
        (m for m in chosen if not (m.identity["quick"] and _spot(m.identity) in full)), order
    )


def _in_order(
    measurements: Iterable[Measurement], order: Mapping[tuple[Any, ...], int]
) -> list[Measurement]:
    def rank(m: Measurement) -> tuple[int, int, int]:
        return order[_spot(m.identity)], m.identity["repetition"], m.identity["seed"]

    return sorted(measurements, key=rank)
