"""The commands `pyrdma bench`, `pyrdma calibrate` and `pyrdma check`; they need no experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import terminal
from .terminal import INTERRUPTED, Json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("bench")(bench)
    app.command("calibrate")(calibrate)
    app.command("check")(check_history)


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Names of benchmarks, or their beginnings."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the speed of pyrdma and of its peers in one run."""
    from pyrdma.bench import command

    raise typer.Exit(command(names or [], as_json))


def calibrate(as_json: Json = False) -> None:
    """Measure the cost of memory copies and clocks on this CPU; print lines of a profile."""
    from pyrdma.calibrate import measure

    found = measure()
    if as_json:
        terminal.print_json([entry.as_dict() for entry in found])
        return
    print("[cpu]")
    for entry in found:
        print(entry.line())


def check_history(
    history: Annotated[Path, typer.Argument(metavar="HISTORY", help="File of JSON Lines.")],
    model: Annotated[
        str | None, typer.Option(help="Model to check against; the header's if left out.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the picture of a violation.")] = Path(),
    as_json: Json = False,
) -> None:
    """Check a history against its model.

    Exit status: 0 no violation, 1 a violation, 2 unreadable, 3 the search gave up. For a violation
    the command prints and draws the smallest part of the history that no order explains. With
    --json standard output has the verdict, and standard error names the pictures.
    """
    from pyrdma.check import command

    try:
        status = command(history, model, out, as_json)
    except KeyboardInterrupt:
        terminal.say("interrupted; the check has not finished")
        raise SystemExit(INTERRUPTED) from None
    raise typer.Exit(status)
