"""The commands that need no experiment: `pyrdma bench`, `pyrdma calibrate`, `pyrdma check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import terminal
from .terminal import Json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("bench")(bench)
    app.command("calibrate")(calibrate)
    app.command("check")(check_history)


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names, or how they begin.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure this project's own speed beside its peers, in one run."""
    from pyrdma.bench import command

    raise typer.Exit(command(names or [], as_json))


def calibrate(as_json: Json = False) -> None:
    """Measure what memory copies and clocks cost on this CPU, as lines of a profile."""
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
        str | None, typer.Option(help="What it is a history of, if not what its header says.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the picture of a violation.")] = Path(),
    as_json: Json = False,
) -> None:
    """Check a history: 0 it is one of its model, 1 a violation, 2 unreadable, 3 given up.

    A violation is shown as the smallest part that cannot be explained, and drawn.
    """
    from pyrdma.check import command

    raise typer.Exit(command(history, model, out, as_json))
