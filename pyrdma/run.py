"""Runs an experiment; writes its table, its figure and its provenance into one folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import claims, figures, provenance, registry
from .data import COLUMNS, Data, NotEvaluated
from .errors import InvalidArgument, Unavailable
from .experiment import Experiment
from .fabrics import FABRICS, fabric_problem
from .profiles import Profile, parse_overrides
from .result import SCHEMA, Value, write_histograms, write_json, write_table
from .store import read_point
from .sweep import Outcome, Sweep

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Options", "Report", "draw", "folder_of", "run"]


@dataclass(frozen=True)
class Options:
    """The options of a run, as the command line has them.

    Parameters
    ----------
    fabric
        The fabric to run on; the experiment's first if None.
    profile
        Name or path; the experiment's profile if None.
    settings
        Axes and profile parameters (``table.key``) set to one value.
    jobs
        Number of worker processes of a simulated sweep; one per core if None.
    fresh
        Measure points again that are already measured.
    """

    out: Path = Path("results")
    fabric: str | None = None
    profile: str | None = None
    quick: bool = True
    seed: int = 1
    settings: Mapping[str, Value] = field(default_factory=dict)
    jobs: int | None = None
    fresh: bool = False


@dataclass(frozen=True)
class Report:
    """The outcome of a run: its points, its folder and its figures."""

    experiment: str
    folder: Path
    outcome: Outcome
    figures: list[Path]
    figure_skipped: str = ""
    figure_failed: str = ""


Progress = Callable[[int, int, str], None]


def folder_of(out: Path, experiment: Experiment, fabric: str) -> Path:
    """Return the folder of an experiment's results on a fabric."""
    return out / experiment.id / fabric


def run(
    name: str,
    options: Options,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run the experiment of this id or path and write its results.

    Points that the same code has already measured are kept; see `Options`.

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
    fabric = options.fabric or experiment.fabrics[0]
    check_fabric(experiment, fabric)
    folder = folder_of(options.out, experiment, fabric)
    started = provenance.now()
    overrides = parse_overrides(options.settings)
    points = list(
        experiment.points(
            quick=options.quick,
            fabric=fabric,
            profile=options.profile,
            overrides=overrides,
            seed=options.seed,
            settings={k: v for k, v in options.settings.items() if "." not in k},
        )
    )
    if experiment.measure is None:
        raise InvalidArgument(
            f"{experiment.id} has nothing to measure; `pyrdma claims` reads its profile"
        )
    if not points:
        raise InvalidArgument(f"{experiment.id}: these settings leave no points")
    if overrides and fabric != "sim":
        raise InvalidArgument(
            f"{', '.join(overrides)}: profile parameters need fabric 'sim', not {fabric!r}"
        )
    sweep = Sweep(name, experiment, points, folder)
    outcome = sweep.run(executor=executor, jobs=options.jobs, fresh=options.fresh, report=progress)
    done = [task for task in outcome.tasks if task.key not in outcome.failed]
    files: dict[str, str] = {}
    frame: pd.DataFrame | None = None
    if done:
        frame = _tables(experiment, folder, [folder / "points" / f"{t.key}.json" for t in done])
        files = {
            file: hashlib.sha256((folder / file).read_bytes()).hexdigest()
            for file in ("results.parquet", "hist.parquet")
        }
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
            "seed": options.seed,
            "points": len(points),
            "failed": [
                {"params": dict(t.point.params), "reason": outcome.failed[t.key]}
                for t in outcome.tasks
                if t.key in outcome.failed
            ],
            "code": sweep.code,
            "started": started,
            "stopped": provenance.now(),
            "files": files,
            "provenance": provenance.collect(),
        },
    )
    if frame is None:
        return Report(experiment.id, folder, outcome, [], "nothing was measured")
    return draw(experiment, frame, Report(experiment.id, folder, outcome, []))


def check_fabric(experiment: Experiment, fabric: str) -> None:
    """Raise unless the experiment can run on this fabric on this machine."""
    if fabric not in FABRICS:
        raise InvalidArgument(f"unknown fabric {fabric!r}; one of {', '.join(FABRICS)}")
    if fabric not in experiment.fabrics:
        reason = experiment.why_not.get(fabric)
        why = f": {reason}" if reason else f"; it runs on {', '.join(experiment.fabrics)}"
        raise InvalidArgument(f"{experiment.id} cannot run on {fabric}{why}")
    problem = fabric_problem(fabric)
    if problem:
        raise Unavailable(f"fabric {fabric}: {problem}")


def _tables(experiment: Experiment, folder: Path, paths: list[Path]) -> pd.DataFrame:
    """Assemble the points' files into the tables, in the order of the axes."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    histograms = []
    for path in paths:
        point_rows, point_histograms, params = read_point(path)
        rows += point_rows
        repetition = int(point_rows[0]["repetition"]) if point_rows else 0
        histograms.append((params, repetition, point_histograms))
    frame = pd.DataFrame(rows)
    frame["experiment"] = experiment.id
    labels = [c for c in frame.columns if c not in COLUMNS]
    frame = frame[["experiment", *labels, *[c for c in COLUMNS if c != "experiment"]]]
    for name in labels:
        if frame[name].map(type).nunique() > 1:
            frame[name] = _one_type(frame[name])
    write_table(folder / "results.parquet", frame)
    write_histograms(folder / "hist.parquet", histograms)
    return frame


def _one_type(column: pd.Series) -> pd.Series:
    """Make a column of mixed types storable: numbers if all values are numbers, otherwise text."""
    import pandas as pd

    try:
        return pd.to_numeric(column)
    except (TypeError, ValueError):
        return column.map(lambda v: v if v is None or v != v else str(v))


def draw(experiment: Experiment, frame: pd.DataFrame, report: Report) -> Report:
    """Draw the experiment's figure; return the report with its files, or the reason for none."""
    if experiment.figure is None:
        return replace(report, figure_skipped="the experiment has none")
    known = claims.load()
    try:
        figure = experiment.figure(Data(frame), known)
    except NotEvaluated as reason:
        return replace(report, figure_skipped=str(reason))
    except Exception as error:
        # The measurements are stored; an error of the figure must not look like theirs.
        text = f"drawing failed: {type(error).__name__}: {error}"
        return replace(report, figure_failed=text)
    name = experiment.id.split("/")[1]
    return replace(report, figures=figures.save(figure, report.folder, name))


def _profiles(points: list[Any], overrides: Mapping[str, float], fabric: str) -> dict[str, Any]:
    """Return name, hash and values of the profiles that the points used."""
    if fabric != "sim":
        return {}
    found = {}
    for name in dict.fromkeys(point.profile for point in points):
        profile = Profile.load(name, overrides)
        found[profile.name] = {
            "path": profile.path.name,
            "digest": profile.digest(),
            "values": profile.values(),
        }
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]
