"""The command line. ``--json`` puts JSON alone on standard output; all else goes to the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import fuzz_cli, machine_cli, terminal
from .errors import Error, InvalidArgument

if TYPE_CHECKING:
    from .claims import Verdict
    from .run import Options, Report
    from .sweep import Workers

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Benchmarks and experiments for RDMA systems: simulated, over shared memory, on NICs.",
)

Out = Annotated[Path, typer.Option("--out", "--results", help="Folder of the results.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")]

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def main() -> None:
    """Run the command line; errors end as one line and status 1, Ctrl-C as 130."""
    try:
        # Typer returns the status of an Exit; of Ctrl-C it makes 130 or Abort, by its version.
        status = app(standalone_mode=False)
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        sys.exit(status or 0)
    except (KeyboardInterrupt, typer.Abort):
        terminal.say("interrupted; what was measured stays, the same command goes on from there")
        sys.exit(INTERRUPTED)
    except Error as error:
        terminal.say(f"pyrdma: {error}")
        sys.exit(2 if isinstance(error, InvalidArgument) else 1)
    except ModuleNotFoundError as error:
        from .doctor import CONTROLLER, install_controller

        if error.name is None or error.name.split(".")[0] not in CONTROLLER:
            raise
        terminal.say(f"pyrdma: {error.name} is missing; install it with: {install_controller()}")
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        # Typer's usage errors know how to show themselves.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))


@app.command("list")
def list_experiments(as_json: Json = False) -> None:
    """List the experiments: id, fabrics, points of a quick and of a full run, title."""
    from . import registry

    found = [registry.load(name) for name in registry.ids()]
    rows: list[dict[str, Any]] = [
        {
            "id": e.id,
            "fabrics": list(e.fabrics) if e.measure else [],
            "profile": e.profile,
            "quick": len(list(e.points(quick=True))) if e.measure else 0,
            "full": len(list(e.points(quick=False))) if e.measure else 0,
            "claims": len(e.decides),
            "title": e.title,
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


@app.command("run")
def run_experiments(
    names: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Ids, patterns (krcore/*), papers, paths, or all."),
    ],
    fabric: Annotated[str | None, typer.Option(help="sim, shm or verbs.")] = None,
    profile: Annotated[str | None, typer.Option(help="Name of a profile, or a TOML file.")] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="All points and durations, or few and short.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)] = 1,
    out: Out = Path("results"),
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Fix an axis, or a profile's table.key."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes of a simulated sweep; all cores.")
    ] = None,
    fresh: Annotated[bool, typer.Option(help="Measure again what was measured already.")] = False,
) -> None:
    """Measure experiments: tables, figures and provenance under OUT/<id>/<fabric>/.

    A run that was ended goes on where it was when the same command is given again.
    """
    from . import registry
    from .run import Options
    from .sweep import Workers

    options = Options(
        out=out,
        fabric=fabric,
        profile=profile,
        quick=not full,
        seed=seed,
        settings=dict(_setting(text) for text in setting or []),
        jobs=jobs,
        fresh=fresh,
    )
    chosen = registry.find(names)
    alone = len(chosen) == 1
    with Workers(jobs) as workers:
        ended_badly = [name for name in chosen if not _run_one(name, options, workers, alone)]
    if ended_badly:
        if len(chosen) > 1:
            terminal.say(
                f"pyrdma: {len(ended_badly)} of {len(chosen)} failed: {', '.join(ended_badly)}"
            )
        raise typer.Exit(1)


def _setting(text: str) -> tuple[str, bool | int | float | str]:
    key, separator, value = text.partition("=")
    if not separator or not key or not value:
        raise InvalidArgument(f"--set {text!r} is not KEY=VALUE, as link.rate_gbps=100")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, value


def _run_one(name: str, options: Options, workers: Workers, alone: bool) -> bool:
    """Run one of several experiments; return whether it ended well."""
    from . import registry
    from .errors import Exhausted, Unavailable
    from .run import run

    if not alone:
        experiment = registry.load(name)
        fabric = options.fabric or experiment.fabrics[0]
        if experiment.measure is None or fabric not in experiment.fabrics:
            why = experiment.why_not.get(fabric, "it has nothing to measure there")
            terminal.say(f"{name}: skipped on {fabric}: {why}")
            return True
    try:
        with _progress(name) as progress:
            report = run(name, options, executor=workers, progress=progress)
    except (Unavailable, Exhausted):
        raise
    except Error as error:
        if alone:
            raise
        terminal.say(f"pyrdma: {name}: {error}")
        return False
    _show(report)
    return not report.outcome.failed and not report.figure_failed


def _show(report: Report) -> None:
    outcome = report.outcome
    done = f"{outcome.measured} points measured"
    if outcome.reused:
        done = f"{outcome.reused} points already measured, {outcome.measured} new"
    print(f"{report.experiment}: {done}; in {report.folder}")
    for path in report.figures:
        print(f"  {path}")
    if report.figure_skipped:
        print(f"  no figure: {report.figure_skipped}")
    if report.figure_failed:
        terminal.say(f"  no figure: {report.figure_failed}")
    reasons = sorted(set(outcome.failed.values()))
    for reason in reasons[:5]:
        count = sum(1 for r in outcome.failed.values() if r == reason)
        terminal.say(f"  {count} points failed: {reason}")


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int, str], None] | None]:
    """Show a bar on a terminal; say nothing where there is none."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(name, total=None, last="")

        def advance(done: int, total: int, last: str) -> None:
            bars.update(task, completed=done, total=total, last=last)

        yield advance


@app.command("claims")
def show_claims(
    system: Annotated[str | None, typer.Argument(help="Paper, as krcore; all if left out.")] = None,
    as_json: Json = False,
    run_missing: Annotated[
        bool, typer.Option("--run", help="First run, quickly, what has no results yet.")
    ] = False,
    out: Out = Path("results"),
    fabric: Annotated[str, typer.Option(help="Fabric whose results decide.")] = "sim",
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list claims that no experiment decides yet.")
    ] = False,
) -> None:
    """Judge the papers' claims by the results that are there; misses first."""
    from . import claims
    from .run import Options

    if run_missing:
        options = Options(out=out, fabric=fabric)
        for name in claims.undecided(out, system, fabric):
            terminal.say(f"running {name}")
            _run_quietly(name, options)
    verdicts = claims.evaluate(out, system, fabric)
    if as_json:
        terminal.print_json([verdict.as_dict() for verdict in verdicts])
        return
    columns = ("claim", "role", "verdict", "expected", "measured", "unit", "reason")
    table = terminal.table(*columns, widest={"expected": 34, "measured": 30, "reason": 52})
    shown = verdicts if show_all else [v for v in verdicts if v.decidable]
    for v in shown:
        table.add_row(
            v.claim, v.role, v.verdict, _cell(v.expected), _cell(v.measured), v.unit, v.reason
        )
    terminal.print_table(table)
    counts = ", ".join(f"{len(claims.select(verdicts, name))} {name}" for name in claims.VERDICTS)
    print(f"{len(verdicts)} claims: {counts}")
    if len(shown) < len(verdicts):
        print(f"{len(verdicts) - len(shown)} that no experiment decides yet: see them with --all")
    _say_calibration(verdicts)


@app.command("summary")
def summary(out: Out = Path("results")) -> None:
    """Show a results folder on one screen: figures, claims by verdict, misses, what to do next."""
    from .summary import lines

    for line in lines(out):
        print(line)


def _say_calibration(verdicts: list[Verdict]) -> None:
    """Name calibration claims that are missed: their profile is wrong."""
    wrong = [v.claim for v in verdicts if v.role == "calibration" and v.verdict == "missed"]
    if wrong:
        print(f"calibration missed, so the profile needs work: {', '.join(wrong)}")


def _run_quietly(name: str, options: Options) -> None:
    from .run import run

    try:
        with _progress(name) as progress:
            report = run(name, options, progress=progress)
        for reason in sorted(set(report.outcome.failed.values())):
            terminal.say(f"  {name}: {reason}")
    except Error as error:
        terminal.say(f"  {name}: {error}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " to ".join(_cell(v) for v in value)
    return str(value)


@app.command("bench")
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names, or how they begin.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure this project's own speed beside its peers, in one run."""
    from .bench import command

    raise typer.Exit(command(names or [], as_json))


@app.command("calibrate")
def calibrate(as_json: Json = False) -> None:
    """Measure what memory copies and clocks cost on this CPU, as lines of a profile."""
    from .calibrate import measure

    found = measure()
    if as_json:
        terminal.print_json([entry.as_dict() for entry in found])
        return
    print("[cpu]")
    for entry in found:
        print(entry.line())


@app.command("check")
def check_history(
    history: Annotated[Path, typer.Argument(metavar="HISTORY", help="File of JSON Lines.")],
    model: Annotated[
        str | None, typer.Option(help="What it is a history of, if not what its header says.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the picture of a violation.")] = Path(),
    as_json: Json = False,
) -> None:
    """Check a history: 0 it is one of its model, 1 a violation, 2 unreadable, 3 given up.

    A violation is shown as the smallest part that cannot be explained, and drawn.
    """
    from .check import command

    raise typer.Exit(command(history, model, out, as_json))


fuzz_cli.register(app, _progress)
machine_cli.register(app)

if __name__ == "__main__":
    main()
