"""The commands that read results: `pyrdma claims`, `pyrdma summary` and `pyrdma compare`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyrdma.errors import Error, InvalidArgument, nearest

from . import claim_lines, terminal
from .predictions import predictions
from .summary import by_paper
from .sweeps import reasons_of_misses, sweeps
from .terminal import Json, Out

if TYPE_CHECKING:
    from pyrdma.claims import Verdict
    from pyrdma.runs import Options

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("claims")(show_claims)
    app.command("summary")(show_summary)
    app.command("compare")(compare_folders)


def show_claims(
    system: Annotated[
        str | None, typer.Argument(help="A paper, by the name of its claims file; all if left out.")
    ] = None,
    as_json: Json = False,
    run_missing: Annotated[
        bool,
        typer.Option(
            "--run",
            help="First run, in quick mode, the experiments whose results are missing or stale.",
        ),
    ] = False,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="First measure the validation claims again with each estimate of their profiles "
            "halved and doubled; takes minutes to hours, and resumes after an interruption.",
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes of --sensitivity; one per core by default.")
    ] = None,
    out: Out = Path("results"),
    fabric: terminal.Judging = "sim",
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list claims that no experiment decides yet.")
    ] = False,
    missed: Annotated[bool, typer.Option("--missed", help="List only the missed claims.")] = False,
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="ID", help="Show everything of one claim, with its reason."),
    ] = None,
    by_sweep: Annotated[
        bool,
        typer.Option(
            "--sweeps",
            help="Show, for each experiment, the errors of the fitted points and the share of the "
            "predicted ones that hold, then the misses by their reasons.",
        ),
    ] = False,
) -> None:
    """Judge the papers' claims by the stored results; missed claims come first."""
    from pyrdma import claims, estimates
    from pyrdma.files import own_folder
    from pyrdma.runs import Options

    if sum((missed, show is not None, by_sweep)) > 1:
        raise InvalidArgument("--missed, --show and --sweeps choose what is shown; give one")
    if show is not None:
        system = _paper_of(show, system)
    if run_missing:
        if "@" in fabric:
            raise InvalidArgument(
                f"--run measures on this machine, not on {fabric}; use 'pyrdma run ID --inventory'"
            )
        own_folder(out)
        options = Options(out=out, fabric=fabric)
        for name in claims.undecided(out, system, fabric):
            terminal.say(f"running {name}")
            _run_quietly(name, options)
    if sensitivity:
        if fabric != "sim":
            raise InvalidArgument(
                f"--sensitivity changes profiles, which only fabric 'sim' has, not {fabric!r}"
            )
        own_folder(out)
        estimates.measure(out, system, jobs, terminal.say)
    verdicts = claims.evaluate(out, system, fabric)
    terminal.say_broken()
    shown = verdicts
    if missed:
        shown = claims.select(verdicts, "missed")
    elif show is not None:
        shown = [v for v in verdicts if v.claim == show]
    if as_json:
        terminal.print_json([verdict.as_dict() for verdict in shown])
        return
    lines = claim_lines.described(shown[0]) if show is not None else None
    if by_sweep:
        lines = sweeps(verdicts, reasons_of_misses(verdicts))
    if lines is None:
        lines = _overview(verdicts, [v for v in shown if show_all or v.decidable], fabric)
    for line in lines:
        print(line)


def _paper_of(claim: str, system: str | None) -> str:
    """Return the paper of a claim's id, which must be the one given if there is one."""
    from pyrdma import claims

    known = claims.load()
    if claim not in known:
        raise InvalidArgument(
            f"--show {claim!r} is no claim{nearest(claim, known)}; 'pyrdma claims --all' lists all"
        )
    paper = known[claim].paper
    if system not in (None, paper):
        raise InvalidArgument(f"--show {claim!r} is a claim of {paper}, not of {system!r}")
    return paper


def _overview(verdicts: Sequence[Verdict], shown: Sequence[Verdict], fabric: str) -> Iterator[str]:
    """Yield the counts by paper, role and verdict, the predictions, and a line per shown claim."""
    yield from by_paper(verdicts, fabric)
    yield ""
    yield from predictions(verdicts)
    if wrong := [v.claim for v in verdicts if v.is_wrong_profile]:
        yield from terminal.listed("missed calibration claims; correct the profile:", wrong)
    yield ""
    if shown:
        yield from claim_lines.lines(shown)
        yield "--show ID shows everything of one claim, with its reason"
        if left := sum(not v.decidable and v not in shown for v in verdicts):
            yield f"--all also lists {left} that no experiment decides yet"
    elif any(v.decidable for v in verdicts):
        yield "no claim is missed"
    else:
        yield "no experiment decides these claims yet; --all lists them"


def show_summary(out: Out = Path("results")) -> None:
    """Show a results folder on one screen: figures, verdicts, missed claims, next commands."""
    from .summary import lines

    for line in lines(out):
        print(line)


def compare_folders(
    a: Annotated[Path, typer.Argument(help="A results folder, or a part of one.")],
    b: Annotated[Path, typer.Argument(help="Another one.")],
    as_json: Json = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list what does not differ.")
    ] = False,
) -> None:
    """Compare two results folders.

    Simulated numbers are compared exactly, seed by seed. Others are compared by their medians, the
    ratio of these, and its interval of 95 %: seeds and repetitions count as values. An interval
    needs seven on each side; without one, a row differs if its medians do.
    """
    from pyrdma.comparison import compare

    frame = compare(a, b)
    if as_json:
        rows = frame.to_dict("records")  # pandas' own JSON has ten digits of a number
        terminal.print_json([{k: None if v != v else v for k, v in row.items()} for row in rows])
        return
    shown = frame if show_all else frame[frame["differs"]]
    numbers = ("a", "b", "ratio", "low", "high")
    names = ("experiment", "metric", *numbers, "unit", "where")
    table = terminal.table(*names, widest={"where": 60})
    rest = [c for c in frame.columns if c not in {*names, "values_a", "values_b", "differs"}]
    for row in shown.to_dict("records"):
        where = ", ".join(
            f"{c}={row[c]}" for c in rest if row[c] == row[c] and row[c] not in ("", None)
        )
        cells = (terminal.cell(row[name]) if row[name] == row[name] else "-" for name in numbers)
        if (
            row["fabric"] == "sim"
            and terminal.cell(row["a"]) == terminal.cell(row["b"])
            and row["differs"]
        ):
            cells = (repr(row[name]) if row[name] == row[name] else "-" for name in numbers)
        table.add_row(row["experiment"], row["metric"], *cells, row["unit"], where)
    if len(shown):
        terminal.print_table(table)
    lacking = (frame.attrs["only_a"], frame.attrs["only_b"])
    print(
        f"{len(frame)} numbers compared, {int(frame['differs'].sum())} differ; only in {a}: "
        f"{lacking[0]}, only in {b}: {lacking[1]}"
    )


def _run_quietly(name: str, options: Options) -> None:
    from pyrdma.runs import execute

    try:
        with terminal.progress(name) as progress:
            report = execute(name, options, progress=progress)
        for reason in sorted(set(report.outcome.failed.values())):
            terminal.say(f"  {name}: {reason}")
    except Error as error:
        terminal.say(f"  {name}: {error}")
