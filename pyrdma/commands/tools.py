"""The commands `pyrdma bench`, `pyrdma calibrate` and `pyrdma check`; they need no experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyrdma.errors import InvalidArgument

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


def calibrate(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[cpu|scopes]",
            help="cpu: copies and clocks of this CPU, as lines of a profile. scopes: instructions "
            "and cache lines of each step of a system, with valgrind, in a checkout.",
        ),
    ] = "cpu",
    system: Annotated[str, typer.Option(help="scopes: the system.")] = "loco",
    write: Annotated[bool, typer.Option("--write", help="scopes: renew the lists.")] = False,
    as_json: Json = False,
) -> None:
    """Measure costs of this machine's CPU, or count the work of a system's steps."""
    if what == "scopes":
        calibrate_scopes(system, write, as_json)
        return
    if what != "cpu":
        raise InvalidArgument(f"calibrate {what!r}: give cpu or scopes")
    from pyrdma.calibrate import measure

    found = measure()
    if as_json:
        terminal.print_json([entry.as_dict() for entry in found])
        return
    print("[cpu]")
    for entry in found:
        print(entry.line())


def calibrate_scopes(system: str, write: bool, as_json: bool) -> None:
    """Count each step; print what differs from the lists, or write the lists again."""
    from pyrdma import scopes

    if system not in scopes.CALIBRATIONS:
        known = ", ".join(scopes.CALIBRATIONS)
        raise InvalidArgument(f"--system {system!r} has no calibration; there are: {known}")
    counts = scopes.measure(system)
    different = scopes.differences(system, counts)
    if write:
        for path in scopes.tables(system):
            path.write_text(scopes.renewed(path, counts), encoding="utf-8")
    if as_json:
        rows = {name: cost.row() for name, cost in sorted(counts.steps.items())}
        terminal.print_json({"covered": counts.covered, "steps": rows, "different": different})
        return
    print(f"{counts.covered:.1%} of the instructions lie in steps")
    for line in different:
        print(line)
    if different and not write:
        print(f"renew the lists: pyrdma calibrate scopes --system {system} --write")
        raise typer.Exit(1)


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
