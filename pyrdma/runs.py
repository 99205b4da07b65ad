"""Runs and draws experiments: measures points, exports the tables, draws the figures."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from . import captions, claims, executors, figures, provenance, registry, results
from . import timeline as timelines
from .arguments import FilePath, Jobs, Repetitions, Seed, checked, shown
from .data import NotEvaluated
from .errors import Error, HostLost, InvalidArgument
from .executors import PROCESSES
from .experiment import Experiment, Point, plain
from .fabrics import FabricName
from .files import own_folder, write_atomically, write_json
from .hosts.fleet import Fleet
from .hosts.table import HostTable
from .options import Options, points_of
from .points import Outcome, describe, place_of
from .profiles import Profile
from .result import SCHEMA, Value, write_histograms, write_table
from .store import Measurement, read_point
from .sweep import Sweep
from .units import digits
from .workers import Workers

if TYPE_CHECKING:
    from .table import Table

__all__ = ["Options", "Report", "draw", "execute", "folder_of", "measured", "run"]


@dataclass(frozen=True)
class Report:
    """The outcome of a run: its points, its folder and its figures.

    Attributes
    ----------
    points
        Number of stored points in the figure.
    note
        A word about these points, such as how many of them other code measured.
    intervals
        File with the median of each metric at each point, and its interval; None if no point has
        several seeds or repetitions.
    timelines
        Lines about the files of the timelines.
    """

    experiment: str
    folder: Path
    outcome: Outcome
    figures: list[Path]
    figure_skipped: str = ""
    figure_failed: str = ""
    note: str = ""
    points: int = 0
    intervals: Path | None = None
    timelines: Sequence[str] = ()


Progress = Callable[[int, int, str], None]

_log = logging.getLogger("pyrdma")


def folder_of(out: Path, experiment: Experiment, place: str) -> Path:
    """Return the folder of an experiment's results at a place: FABRIC, or FABRIC@TESTBED."""
    return out / experiment.id / place


@checked
def run(
    name: str,
    *,
    set: Mapping[str, Value | Sequence[Value]] | None = None,  # noqa: A002 - as the command line's --set
    seeds: Sequence[Seed] | None = None,
    repetitions: Repetitions | None = None,
    fabric: FabricName | None = None,
    profile: str | None = None,
    full: bool = False,
    out: FilePath = "results",
    jobs: Jobs | None = None,
    fresh: bool = False,
    inventory: FilePath | None = None,
    hosts: str | None = None,
    executor: str = PROCESSES,
    progress: Callable[[int, int, str], None] | None = None,
    timeline: FilePath | None = None,
    timeline_window: str = "",
    timeline_limit: timelines.Limit = timelines.LIMIT,
) -> Table:
    """Measure an experiment and return its points as a tidy table, as `pyrdma.load` does.

    The table's `ci` gives medians with confidence intervals over seeds and repetitions. In a
    notebook the table shows these, and the figure. Points that the same code has already measured
    into `out` are not measured again. The function also exports the tables and draws the figure, as
    the command ``pyrdma run`` does.

    Parameters
    ----------
    name
        Id or path of the experiment.
    set
        Axes fixed to one value or to a list of values, and profile parameters (``table.key``) to
        one value.
    seeds
        Each point is measured with each of these seeds. None: on ``sim`` three seeds, or six if
        `full`; elsewhere one, since repetitions differ there.
    repetitions
        How often a point is measured on a real-time fabric with each seed. Without a number the
        experiment's ``max_repetitions`` and ``target`` decide. On ``sim`` equal seeds give equal
        numbers, so give `seeds` there.
    fabric, profile, full, out, jobs, fresh
        The options of the command line; see `Options`.
    inventory, hosts
        Ansible's inventory of the hosts that hold the nodes, and a pattern that chooses among them;
        see `Cluster.remote`.
    executor
        Where simulated points are measured: ``processes`` or ``dask`` on this machine,
        ``tls://HOST:PORT`` of a Dask scheduler, or ``slurm``.
    progress
        Called after each point with the number of points done, that of all, and a text on the
        point; `pyrdma.notebook.progress` makes one that shows a line in a notebook.
    timeline, timeline_window, timeline_limit
        Measure the first point alone, on ``sim`` and in this process, and record its timeline into
        this file; the table then has this point. See `SimulatedCluster.timeline`. The table's
        `timelines` has a line on each file.

    Raises
    ------
    Error
        A reason of `execute`, or a point failed. The text is the first reason; measured points
        stay.
    """
    if hosts is not None and inventory is None:
        raise InvalidArgument(
            f"hosts={shown(hosts)} chooses from an inventory; give inventory='hosts.yml'"
        )
    if timeline is None and (timeline_window or timeline_limit != timelines.LIMIT):
        raise InvalidArgument(
            f"timeline_window={shown(timeline_window)} and timeline_limit={timeline_limit} need "
            "timeline='out.json.gz'"
        )
    options = Options(
        out=Path(out),
        fabric=executors.fabric_for(executor, fabric),
        profile=profile,
        quick=not full,
        seeds=None if seeds is None else tuple(map(plain, seeds)),
        repetitions=repetitions,
        settings=dict(set or {}),
        jobs=jobs,
        fresh=fresh,
        timeline=None
        if timeline is None
        else timelines.Options(timeline, timeline_window, timeline_limit),
    )
    with ExitStack() as stack:
        if inventory is not None:
            fleet = stack.enter_context(Fleet.open(inventory, hosts))
            options = replace(options, fleet=fleet)
        workers = None  # the sweep starts as many processes as it has use for
        if executor != PROCESSES:
            workers = stack.enter_context(executors.make(executor, jobs, options.out))
        report = execute(name, options, workers, progress)
    if report.outcome.failed:
        reasons = list(report.outcome.failed.values())
        raise Error(f"{report.experiment}: {len(reasons)} points failed: {reasons[0]}")
    if report.figure_failed:
        _log.warning("%s: %s", report.experiment, report.figure_failed)
    table = results.table(measured(report))
    table.figures = report.figures
    table.timelines = report.timelines
    return table


def measured(report: Report) -> list[Measurement]:
    """Return the measurements of a run's points, without those that failed or were skipped."""
    outcome, folder = report.outcome, report.folder / "points"
    keys = [task.key for task in outcome.tasks]
    lacking = outcome.failed.keys() | outcome.skipped.keys()
    return [read_point(folder / f"{key}.jsonl") for key in keys if key not in lacking]


def execute(
    name: str,
    options: Options,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Report:
    """Measure the experiment of this id or path, export its tables, and draw its figure.

    Points that the same code has already measured are kept; see `Options`. The tables are the union
    of all measurements in the folder.

    Raises
    ------
    Unavailable
        The fabric is missing; the message says what to install.
    InvalidArgument
        A parameter or a profile is wrong.
    Exhausted, Error
        The disk is full, or the folder cannot be written; points already measured stay.
    """
    experiment = registry.load(name)
    fleet = options.fleet
    fabric = options.fabric or experiment.fabrics[0]
    started = provenance.now()
    points = points_of(experiment, options)
    overrides = points[0].overrides
    recorder = None
    if options.timeline is not None:
        if fabric != "sim":
            raise InvalidArgument(
                f"timeline {options.timeline.path} needs fabric 'sim', not {fabric!r}"
            )
        if not isinstance(executor, (Workers, NoneType)):
            raise InvalidArgument(
                f"timeline {options.timeline.path} is recorded in this process; leave the executor "
                "out"
            )
        executor = recorder = timelines.Recorder(options.timeline)
        head = "timeline" if len(points) == 1 else f"timeline of the first of {len(points)} points"
        head += f" ({describe(points[0])})" if points[0].params else ""
        points = points[:1]
    sweep = Sweep(name, experiment, points, options.out, fleet)
    place = place_of(fabric, fleet)
    folder = folder_of(options.out, experiment, place)
    table = None if fleet is None else HostTable(fleet, compare=fabric == "verbs")
    try:
        outcome = sweep.run(
            executor=executor,
            jobs=options.jobs,
            repetitions=options.repetitions,
            fresh=options.fresh or recorder is not None,
            report=progress,
        )
    except HostLost as error:
        raise HostLost(
            f"{experiment.id}: {error}; the finished points stay: the same command resumes the "
            "run, and --hosts '!NAME' goes on without a host"
        ) from error
    if table is not None:
        table.write(folder)
    write_json(
        folder / "run.json",
        {
            "schema": SCHEMA,
            "experiment": experiment.id,
            "title": experiment.title,
            "fabric": fabric,
            "profile": options.profile,
            "profiles": _profiles(points, overrides, fabric),
            "overrides": overrides,
            "settings": {k: v for k, v in options.settings.items() if k not in overrides},
            "quick": options.quick,
            "seeds": list(options.seeds_on(fabric)),
            "repetitions": options.repetitions,
            "points": len(points),
            "failed": [
                {"params": dict(t.point.params), "reason": outcome.failed[t.key]}
                for t in outcome.tasks
                if t.key in outcome.failed
            ],
            "skipped": [
                {"params": dict(t.point.params), "reason": outcome.skipped[t.key]}
                for t in outcome.tasks
                if t.key in outcome.skipped
            ],
            "hosts": [] if fleet is None else [host.name for host in fleet.hosts],
            "started": started,
            "stopped": provenance.now(),
            "provenance": provenance.collect(),
        },
    )
    tables = results.tables_of_today(options.out, experiment, place)
    everything = [m for stored in tables.values() for m in stored]
    export_tables(everything, folder)
    lines = [] if recorder is None else [f"{head}: {each}" for each in recorder.timelines]
    report = Report(
        experiment.id,
        folder,
        outcome,
        [],
        intervals=_intervals(everything, folder),
        timelines=lines,
    )
    if len(outcome.failed) + len(outcome.skipped) == len(outcome.tasks):
        return replace(report, figure_skipped="nothing was measured")
    declared = points_of_figure(experiment, fabric, options.profile, overrides)
    for at, stored in tables.items():
        chosen = results.in_figure(stored, [*declared, *points], overrides)
        count = report.points + len(chosen)
        note = report.note or results.stale_note(experiment, chosen)
        ending = variant(options.profile, overrides, at.host)
        report = _draw(name, chosen, replace(report, note=note, points=count), ending)
    return report


def draw(name: str, out: Path, fabric: str | None = None, caption: bool = False) -> list[Report]:
    """Draw an experiment's figures from what is stored, on `fabric` or on every fabric.

    There is a figure for the experiment's own testbed, and one for each other profile and each set
    of overrides with results. Of hosts that measured apart, each has its figures. Measurements by
    other code are drawn, too; the report's note says how many. With `caption` a line below each
    figure says what was measured; the file's metadata always do.

    Raises
    ------
    Error
        The folder cannot be written, or another user could have prepared it.
    """
    experiment = registry.load(name)
    reports = []
    for place, stored in results.tables_of_today(out, experiment).items():
        if place.fabric not in ([fabric] if fabric else experiment.fabrics):
            continue
        folder = own_folder(out, *experiment.id.split("/"), place.folder)
        own = {p.profile for p in points_of_figure(experiment, place.fabric, None, {})}
        testbeds = {
            (None if p in own else p, tuple(sorted(m.identity["overrides"].items())))
            for m in stored
            for p in [m.identity["profile"]]
        }
        for profile, pairs in sorted(testbeds, key=str):
            overrides = dict(pairs)
            declared = points_of_figure(experiment, place.fabric, profile, overrides)
            chosen = results.in_figure(stored, declared, overrides)
            note = results.stale_note(experiment, chosen)
            outcome = Outcome([], 0, 0, {})
            report = Report(experiment.id, folder, outcome, [], note=note, points=len(chosen))
            ending = variant(profile, overrides, place.host)
            reports.append(_draw(name, chosen, report, ending, caption))
    return reports


def points_of_figure(
    experiment: Experiment, fabric: str, profile: str | None, overrides: Mapping[str, float]
) -> list[Point]:
    """Return the points that the experiment declares, of a quick and of a full run."""
    same = {"fabric": fabric, "profile": profile, "overrides": overrides}
    return [p for quick in (False, True) for p in experiment.points(quick=quick, **same)]  # type: ignore[arg-type]


def variant(profile: str | None, overrides: Mapping[str, float], host: str = "") -> str:
    """Return the end of a figure's name: the host, and how the testbed is not the experiment's."""
    words = [f"host={host}"] if host else []
    words += [f"profile={Path(profile).stem}"] if profile else []
    words += [f"{key}={digits(value)}" for key, value in sorted(overrides.items())]
    text = ",".join(words)
    if len(text) > 100:
        text = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"-{text}" if text else ""


def export_tables(stored: Sequence[Measurement], folder: Path) -> None:
    """Write the tables of all measurements in a folder, the newest of each point."""
    found = sorted(results.newest(stored), key=results.by_value)
    if found:
        write_table(folder / "results.parquet", results.table(found))
        params = ((m.identity["params"], m.identity["repetition"], m.histograms) for m in found)
        write_histograms(folder / "hist.parquet", params)


def _intervals(stored: Sequence[Measurement], folder: Path) -> Path | None:
    """Write the medians of all points with their intervals, if points have several values."""
    path = folder / "intervals.csv"
    found = results.newest(stored)
    if len({(m.identity["seed"], m.identity["repetition"]) for m in found}) < 2:
        path.unlink(missing_ok=True)
        return None
    write_atomically(path, results.table(found).intervals().to_csv(index=False).encode())
    return path


def _draw(
    name: str, chosen: Sequence[Measurement], report: Report, ending: str, caption: bool = False
) -> Report:
    """Draw the experiment's figure; return the report with its files, or the reason for none.

    The paper's numbers are drawn beside simulated points of its own testbeds alone.
    """
    experiment = registry.load(name)
    from . import figure_spread  # it loads NumPy

    make = experiment.figure
    if make is None:
        return replace(report, figure_skipped="the experiment has none")
    if not chosen:
        return replace(report, figure_skipped="no stored point is on the axes")
    known, source = claims.load(), registry.source(name)
    own = {p.profile for p in points_of_figure(experiment, "sim", None, {})}
    beside = nullcontext() if captions.is_papers(chosen, own) else figures.without_paper()
    with figures.closing(), beside:
        try:
            figure, note = figure_spread.drawn(
                lambda data: make(data, known), results.table(chosen)
            )
        except NotEvaluated as reason:
            return replace(report, figure_skipped=registry.located(reason, source))
        except Exception as error:
            # The measurements are stored; an error of the figure must not look like theirs.
            text = f"drawing failed: {registry.located(error, source)}"
            return replace(report, figure_failed=text)
        if not hasattr(figure, "savefig"):
            place = registry.beginning(make, source)
            text = f"figure() returned {shown(figure)}; return a Matplotlib figure ({place})"
            return replace(report, figure_failed=f"drawing failed: {text}")
        try:
            drawn = figures.save(
                figure,
                report.folder,
                experiment.id.split("/")[1] + ending,
                title=experiment.title,
                about=captions.line_of(chosen),
                caption=caption,
                note=note,
                points=[m.name for m in chosen],
            )
        except (Error, OSError):
            raise
        except Exception as error:  # of Matplotlib, which draws here
            text = f"drawing failed: {registry.located(error, source)}"
            return replace(report, figure_failed=text)
    return replace(report, figures=[*report.figures, *drawn])


def _profiles(points: list[Any], overrides: Mapping[str, float], fabric: str) -> dict[str, Any]:
    """Return name, hash and values of the profiles that the points used."""
    if fabric != "sim":
        return {}
    found = {}
    for name in dict.fromkeys(point.profile for point in points):
        profile = Profile.load(name, overrides)
        found[profile.name] = {
            "path": profile.path.name,
            "values": profile.values(),
        }
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]
