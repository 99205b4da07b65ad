"""The commands that read results: `pyrdma claims` and `pyrdma summary`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyrdma.errors import Error

from . import terminal
from .terminal import Json, Out

if TYPE_CHECKING:
    from pyrdma.claims import Verdict
    from pyrdma.run import Options

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("claims")(show_claims)
    app.command("summary")(show_summary)


def show_claims(
    system: Annotated[
        str | None, typer.Argument(help="A paper, by the name of its claims file; all if left out.")
    ] = None,
    as_json: Json = False,
    run_missing: Annotated[
        bool,
        typer.Option("--run", help="First run the experiments without results, in quick mode."),
    ] = False,
    out: Out = Path("results"),
    fabric: Annotated[
        str, typer.Option(help="The fabric whose results decide the claims.")
    ] = "sim",
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list claims that no experiment decides yet.")
    ] = False,
) -> None:
    """Judge the papers' claims by the stored results; missed claims come first."""
    from pyrdma import claims
    from pyrdma.run import Options

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
        print(f"{len(verdicts) - len(shown)} have no experiment yet; --all lists them")
    _say_calibration(verdicts)


def show_summary(out: Out = Path("results")) -> None:
    """Show a results folder on one screen: figures, verdicts, missed claims, next commands."""
    from .summary import lines

    for line in lines(out):
        print(line)


def _say_calibration(verdicts: list[Verdict]) -> None:
    """Name the missed calibration claims, whose profile is wrong."""
    wrong = [v.claim for v in verdicts if v.role == "calibration" and v.verdict == "missed"]
    if wrong:
        print(f"missed calibration claims; correct the profile: {', '.join(wrong)}")


def _run_quietly(name: str, options: Options) -> None:
    from pyrdma.run import run

    try:
        with terminal.progress(name) as progress:
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
