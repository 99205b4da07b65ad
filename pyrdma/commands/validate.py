"""The command `pyrdma validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import terminal
from .terminal import Json, Out

if TYPE_CHECKING:
    from pyrdma.validate import Comparison

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("validate")(validate)


def validate(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="Name or file, as `pyrdma calibrate` writes.")
    ],
    fabric: Annotated[str, typer.Option(metavar="shm|verbs", help="The real fabric.")] = "shm",
    device: Annotated[
        str, typer.Option(metavar="DEVICE[:PORT[:GID]]", help="verbs: the device.")
    ] = "",
    out: Out = Path("results/validate"),
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Entries, or their beginnings; may be repeated."),
    ] = None,
    repetitions: Annotated[
        int, typer.Option(min=1, max=1000, help="Measurements of each entry on the real fabric.")
    ] = 7,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what is already measured.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare this machine's real fabric with its simulation under PROFILE.

    Both worlds run the same workloads. The table and the figure show the median of the real fabric
    with its 95 % interval beside the simulated number.

    Exit status: 0 when every error is within its bound, 1 otherwise.
    """
    from pyrdma import validate as validating
    from pyrdma import validation_figure

    entries = validating.choose(only or [])
    for entry in [] if only else validating.left_out():
        terminal.say(f"SKIPPED: {entry.name} needs {entry.cores} cores, and this process has fewer")
    with terminal.progress("validate") as progress:
        found = validating.compare(
            profile,
            entries,
            fabric,
            out,
            device=device,
            repetitions=repetitions,
            fresh=fresh,
            report=progress,
        )
    drawn = validation_figure.draw(found, fabric, out)
    if as_json:
        terminal.print_json([c.as_dict() for c in found])
    else:
        show(found)
    for path in drawn:
        terminal.say(f"drawn: {path}")
    raise typer.Exit(0 if all(c.within for c in found) else 1)


def show(found: list[Comparison]) -> None:
    """Print the table, then the misses."""
    columns = ("workload", "metric", "unit", "measured", "95 % interval", "simulated")
    table = terminal.table(*columns, "error", "bound", "")
    for c in found:
        head = (c.name, c.metric, c.unit)
        bound = f"{c.bound:.0%}"
        if c.measured is None or c.simulated is None:
            table.add_row(*head, "", "", "", "", bound, "failed")
            continue
        table.add_row(
            *head,
            number(c.measured),
            f"{number(c.low or 0)} to {number(c.high or 0)}",
            number(c.simulated),
            "" if c.error is None else f"{c.error:+.0%}",
            bound,
            "" if c.within else "missed",
        )
    terminal.print_table(table)
    missed = [c for c in found if not c.within]
    print(f"{len(found) - len(missed)} of {len(found)} within the bound")
    for c in missed:
        reason = c.problem or f"{c.error:+.0%}, bound {c.bound:.0%}"
        print(f"missed: {c.name}: {reason}")


def number(value: float) -> str:
    """Return a number with three digits, and a prefix from a thousand on."""
    for factor, prefix in ((1e6, " M"), (1e4, " k")):
        if value >= factor:
            return f"{value / (1e6 if prefix == ' M' else 1e3):.3g}{prefix}"
    return f"{value:.4g}"
