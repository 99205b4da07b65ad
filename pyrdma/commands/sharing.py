"""The commands that share results: `pyrdma report`, `pyrdma archive` and `pyrdma verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from . import terminal
from .terminal import Json

__all__ = ["register"]

Results = Annotated[Path, typer.Argument(metavar="[RESULTS]", help="A results folder.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("report")(write_report)
    app.command("archive")(make_archive)
    app.command("verify")(verify_archive)


def write_report(
    results: Results = Path("results"),
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    fabric: terminal.Judging = "sim",
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="OTHER", help="Another results folder; the report says how its numbers differ."
        ),
    ] = None,
) -> None:
    """Write a report of a results folder: one HTML file, which needs no network and no scripts.

    It says what was measured and where, and how another folder differs; then it has predictions
    and misses, the verdicts by paper with their reasons, the figures, the medians of all points
    with their intervals, the provenance, and how the hosts differ.
    """
    from pyrdma.sharing import report

    figures = report.write(results, out, fabric, compare)
    terminal.say_broken()
    terminal.say(f"{out}: {figures} figures, {out.stat().st_size / 1e6:.1f} MB")


def make_archive(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="A results folder.")],
    out: Annotated[Path, typer.Option(help="The archive to write; it must not exist.")],
    license: Annotated[  # noqa: A002 - the option's name
        str, typer.Option(help="Licence of the results, an SPDX identifier.")
    ] = "Apache-2.0",
    author: Annotated[str, typer.Option(help="Who is to be cited.")] = "",
) -> None:
    """Archive a results folder as a ZIP that is an RO-Crate: points, tables, figures, verdicts.

    It also has the experiments' sources, the claims, the profiles, the machine, the versions, and
    the SHA-256 of each file. `pyrdma verify` checks it and makes figures and verdicts again.
    """
    from pyrdma.sharing import archive

    digest = archive.make(results, out, license=license, author=author, say=terminal.say)
    terminal.say(f"{out}: {out.stat().st_size / 1e6:.1f} MB; publish its SHA-256 with it:")
    print(digest)


def verify_archive(
    file: Annotated[Path, typer.Argument(help="An archive that `pyrdma archive` made.")],
    run_archived: Annotated[
        bool,
        typer.Option(
            "--run-archived",
            help="Draw and judge by the archive's own experiments, whose code then runs here.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check an archive, make its tables, figures and verdicts again, and say what differs.

    The installed experiments draw and judge. The exit status is 1 if anything is damaged or
    differs.
    """
    from pyrdma.registry import VARIABLE
    from pyrdma.sharing import crate
    from pyrdma.sharing.verify import verify

    with crate.unpacked(file) as (archive, folder):
        if run_archived:
            os.environ[VARIABLE] = str(folder / "experiments")
        found = verify(archive, folder)
    if as_json:
        terminal.print_json({"archive": str(file), **found.as_dict()})
    else:
        print(f"{file}: SHA-256 {found.sha256}")
        for line in (*found.notes, *(f"differs: {text}" for text in found.differences)):
            print(line)
        counts = ", ".join(f"{count} {kind}" for kind, count in found.equal.items())
        print(f"{counts} are as the archive has them; {len(found.differences)} differ")
    if found.differences:
        raise typer.Exit(1)
