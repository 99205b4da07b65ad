"""The commands `pyrdma list`, `pyrdma run` and `pyrdma draw`."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyrdma.errors import Error, InvalidArgument

from . import terminal, timelines
from .hosts import Hosts, Inventory
from .settable import RunCommand, about
from .terminal import Json, Out

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from pyrdma.experiment import Value
    from pyrdma.runs import Options, Report

__all__ = ["register"]

_MOST_SEEDS = 10**6
_MOST_TABLES = 10  # a run of more experiments prints a line each


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("list")(list_experiments)
    app.command("run", cls=RunCommand)(run_experiments)
    app.command("draw")(draw_experiments)


def list_experiments(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="An experiment: say what can be set in it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the experiments: id, fabrics, points of a quick and of a full run, title.

    Of one experiment, list the axes, and the parameters of its workloads and its profile.
    """
    from pyrdma import registry

    terminal.say_broken()
    chosen = registry.ids() if name is None else registry.find([name])
    found = [registry.load(each) for each in chosen if each not in registry.broken()]
    if name is not None and not as_json:
        print("\n".join(map(about, found)), end="")
        return
    rows: list[dict[str, Any]] = [
        {
            "id": e.id,
            "fabrics": list(e.fabrics) if e.measure else [],
            "profile": e.profile,
            "quick": len(list(e.points(quick=True))) if e.measure else 0,
            "full": len(list(e.points(quick=False))) if e.measure else 0,
            "claims": len(e.decides),
            "title": e.title,
            "axes": {axis: asdict(values) for axis, values in e.axes.items()},
        }
        for e in found
    ]
    if as_json:
        terminal.print_json(rows)
        return
    table = terminal.table(
        "id", "fabrics", "quick", "full", "claims", "title", widest={"title": 90}
    )
    for row in rows:
        table.add_row(
            row["id"],
            " ".join(row["fabrics"]) or "-",
            *(str(row[name]) for name in ("quick", "full", "claims", "title")),
        )
    terminal.print_table(table)


def run_experiments(
    names: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Ids, patterns (fabric/*), papers, paths, or all."),
    ],
    fabric: Annotated[str | None, typer.Option(help="sim, shm or verbs.")] = None,
    profile: Annotated[str | None, typer.Option(help="Name of a profile, or a TOML file.")] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="Full: all points, long runs. Quick: few points, short runs."
        ),
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**64 - 1, help="The seed, or the first of --seeds N.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N|RANGES",
            help="Measure each point with several seeds: as many as N, from --seed or 1 on, or "
            "those of ranges as 1-10 or 1-3,7. Default: on sim 3, with --full 6; elsewhere 1.",
        ),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**6,
            help="Measure each point of a real-time fabric so many times, in place of as many as "
            "the experiment declares. On sim equal seeds give equal numbers: use --seeds.",
        ),
    ] = None,
    out: Out = Path("results"),
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Fix an axis to one value or several (8,64), or a profile's table.key.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes of a simulated sweep; one per core by default."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option(help="Measure points again that are already measured.")
    ] = False,
    inventory: Inventory = None,
    hosts: Hosts = None,
    executor: Annotated[
        str,
        typer.Option(
            help="Where simulated points are measured: processes or dask on this machine, "
            "tls://HOST:PORT of a Dask scheduler, or slurm."
        ),
    ] = "processes",
    timeline: timelines.File = None,
    timeline_window: timelines.Window = "",
    timeline_limit: timelines.Limit = timelines.LIMIT,
) -> None:
    """Measure experiments; write tables, figures and provenance to OUT/<id>/<fabric>/.

    At the end stand the points with the paper's numbers, and the verdicts of the claims. A run of
    more than ten experiments only counts the verdicts.

    Points that today's code has measured are kept. So the same command resumes an interrupted run,
    and another one adds its points to the tables.
    """
    from pyrdma import executors, registry
    from pyrdma.runs import Options

    options = Options(
        out=out,
        fabric=executors.fabric_for(executor, fabric),
        profile=profile,
        quick=not full,
        seeds=_seeds(seed, seeds),
        repetitions=repetitions,
        settings=_settings(setting or []),
        jobs=jobs,
        fresh=fresh,
        timeline=timelines.options_of(timeline, timeline_window, timeline_limit),
    )
    if hosts is not None and inventory is None:
        raise InvalidArgument(f"--hosts {hosts!r} chooses from an inventory; give --inventory FILE")
    chosen = registry.find(names)
    alone, tables = len(chosen) == 1, len(chosen) <= _MOST_TABLES
    if timeline is not None and not alone:
        raise InvalidArgument(
            f"--timeline records one experiment, and these are {len(chosen)}; name one"
        )
    with ExitStack() as stack:
        if inventory is not None:
            from pyrdma.hosts.fleet import Fleet

            fleet = stack.enter_context(Fleet.open(inventory, hosts))
            options = replace(options, fleet=fleet)
        workers = stack.enter_context(executors.make(executor, jobs, out))
        ended_badly = [
            name for name in chosen if not _run_one(name, options, workers, alone, tables)
        ]
    if ended_badly:
        if len(chosen) > 1:
            terminal.say(
                f"pyrdma: {len(ended_badly)} of {len(chosen)} failed: {', '.join(ended_badly)}"
            )
        raise typer.Exit(1)


def _seeds(first: int | None, text: str | None) -> list[int] | None:
    """Return the seeds that ``--seed`` and ``--seeds`` name; None if they name none."""
    if first is None and text is None:
        return None
    if text is None or re.fullmatch(r"\d{1,20}", text, re.ASCII):
        begin = 1 if first is None else first
        ranges = [(begin, begin + int(text or 1) - 1)]
    elif first is None:
        ranges = [_range(part, text) for part in text.split(",")]
    else:
        raise InvalidArgument(
            f"--seed {first} begins a number of seeds, and --seeds {text} lists them; give one"
        )
    count, most = sum(b - a + 1 for a, b in ranges), max(b for _, b in ranges)
    if not 1 <= count <= _MOST_SEEDS or most >= 2**64:
        raise InvalidArgument(
            f"--seeds {text} gives {count} seeds up to {most}; give 1 to {_MOST_SEEDS} seeds, each "
            "from 0 to 2**64 - 1"
        )
    return [seed for a, b in ranges for seed in range(a, b + 1)]


def _range(part: str, text: str) -> tuple[int, int]:
    """Return the first and the last seed of a part of a list of seeds."""
    found = re.fullmatch(r"(\d{1,20})(?:-(\d{1,20}))?", part.strip(), re.ASCII)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise InvalidArgument(
            f"--seeds {text}: {part!r} is neither a seed nor FIRST-LAST; give a number of seeds as "
            "10, or seeds as 1-10 or 1-3,7"
        )
    return first, last


def _settings(texts: Sequence[str]) -> dict[str, Value]:
    """Return the settings of ``--set``, each given once."""
    found: dict[str, Value] = {}
    for key, value in map(_setting, texts):
        if key in found:
            raise InvalidArgument(
                f"--set gives {key} twice; give all values of an axis at once, as "
                f"--set {key}={found[key]},{value}"
            )
        found[key] = value
    return found


def _setting(text: str) -> tuple[str, Value]:
    from pyrdma.experiment import parse_value

    key, separator, value = text.partition("=")
    if not separator or not key or not value:
        raise InvalidArgument(f"--set {text!r} is not KEY=VALUE, for example link.rate_gbps=100")
    return key, parse_value(value)


def _run_one(name: str, options: Options, workers: Executor, alone: bool, table: bool) -> bool:
    """Run one of several experiments; return whether it succeeded."""
    from pyrdma import registry
    from pyrdma.errors import Exhausted, HostLost, Unavailable
    from pyrdma.options import ComparesProfiles
    from pyrdma.runs import execute

    if not alone:
        try:
            experiment = registry.load(name)
        except Error as error:
            terminal.say(f"pyrdma: {name}: {error}")
            return False
        fabric = options.fabric or experiment.fabrics[0]
        if experiment.measure is None or fabric not in experiment.fabrics:
            why = experiment.why_not.get(fabric, "the experiment measures nothing there")
            terminal.say(f"{name}: skipped on {fabric}: {why}")
            return True
    try:
        with terminal.progress(name) as progress:
            report = execute(name, options, executor=workers, progress=progress)
        _show(report)
        if report.outcome.measured + report.outcome.reused:
            _show_numbers(name, report, options.out, table=table)
    except (Unavailable, Exhausted, HostLost):
        raise
    except Error as error:
        if alone:
            raise
        if isinstance(error, ComparesProfiles):  # no fault of a run of all experiments
            terminal.say(f"{name}: skipped: {error}")
            return True
        terminal.say(f"pyrdma: {name}: {error}")
        return False
    return not report.outcome.failed and not report.figure_failed


def draw_experiments(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...",
            help="Ids, patterns or paths, see 'run'; all with results if left out.",
        ),
    ] = None,
    fabric: Annotated[str | None, typer.Option(help="Only of this fabric.")] = None,
    caption: Annotated[
        bool,
        typer.Option(
            "--caption",
            help="Write fabric, profile, quick or full, number of points and seeds below each "
            "figure; the file's metadata always have them.",
        ),
    ] = False,
    out: Out = Path("results"),
) -> None:
    """Draw the figures of stored results again; measure nothing."""
    from pyrdma import registry, results
    from pyrdma.arguments import check
    from pyrdma.fabrics import FabricName
    from pyrdma.runs import draw

    if fabric is not None:
        check("fabric", fabric, FabricName)
    results.check_folder(out)
    ended_badly = False
    drawn = 0
    for name in registry.find(names or ["all"]):
        try:
            reports = draw(name, out, fabric, caption)
        except Error as error:
            terminal.say(f"pyrdma: {name}: {error}")
            ended_badly = True
            continue
        if names and not reports:
            terminal.say(
                f"pyrdma: {name}: nothing is stored in {out}; 'pyrdma run {name}' measures"
            )
            ended_badly = True
        for report in reports:
            drawn += 1
            print(f"{report.experiment}: {report.points} points; in {report.folder}")
            _show_figures(report)
            ended_badly = ended_badly or bool(report.figure_failed)
    if not drawn and not ended_badly:
        raise InvalidArgument(
            f"{out} holds no results of the experiments that 'pyrdma list' shows; 'pyrdma run ID "
            f"--out {out}' measures some; name the file of an experiment that lies elsewhere"
        )
    if ended_badly:
        raise typer.Exit(1)


def _show(report: Report) -> None:
    outcome = report.outcome
    done = f"{outcome.measured} points measured"
    if outcome.reused:
        done = f"{outcome.reused} points already measured, {outcome.measured} new"
    print(f"{report.experiment}: {done}; in {report.folder}")
    for line in report.timelines:
        print(f"  {line}")
    _show_figures(report)
    if report.intervals is not None:
        print(f"  {report.intervals}: medians over seeds and repetitions, and their intervals")
    for reason in sorted(set(outcome.skipped.values())):
        count = sum(1 for r in outcome.skipped.values() if r == reason)
        terminal.say(f"  {count} points skipped: {reason}")
    reasons = sorted(set(outcome.failed.values()))
    for reason in reasons[:5]:
        count = sum(1 for r in outcome.failed.values() if r == reason)
        terminal.say(f"  {count} points failed: {reason}")


def _show_numbers(name: str, report: Report, out: Path, table: bool) -> None:
    """Print the points of a run, and the claims that its experiment decides."""
    from pyrdma import claims, registry
    from pyrdma.evidence import Evidence

    from . import claim_lines, point_table

    experiment = registry.load(name)
    if table:
        for line in point_table.lines(report, experiment):
            print(line)
    verdicts = claims.judged(Evidence(out, report.folder.name), experiment=name)
    if not verdicts:
        return
    place = f"{report.experiment}, on {report.folder.name}"
    print(f"  claims of {place}: {claim_lines.counts(verdicts)}")
    if not table:
        return
    judged = [v for v in verdicts if v.verdict not in ("stale", "not evaluated")]
    for line in claim_lines.lines(judged, indent="  "):
        print(line)
    for reason in dict.fromkeys(v.reason for v in verdicts if v not in judged):
        names = [v.claim for v in verdicts if v.reason == reason and v not in judged]
        for line in terminal.listed(f"  not judged, {reason}:", names):
            print(line)


def _show_figures(report: Report) -> None:
    if report.note:
        terminal.say(f"  {report.note}")
    for path in report.figures:
        print(f"  {path}")
    if report.figure_skipped:
        print(f"  no figure: {report.figure_skipped}")
    if report.figure_failed:
        terminal.say(f"  no figure: {report.figure_failed}")
