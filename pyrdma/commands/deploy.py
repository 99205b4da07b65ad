"""The commands `pyrdma playbooks` and `pyrdma bundle`, which prepare the hosts of a cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import terminal
from .terminal import Json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("playbooks")(show_playbooks)
    app.command("bundle")(make_bundle)


def show_playbooks() -> None:
    """Print the folder of the Ansible playbooks that set hosts up; it has a README.md.

    An example: ansible-playbook -i hosts.yml "$(pyrdma playbooks)/site.yml".
    """
    package = Path(__file__).resolve().parents[1]
    places = [folder / "playbooks" for folder in (package, package.parent)]
    print(next(folder for folder in places if (folder / "site.yml").is_file()))


def make_bundle(
    python: Annotated[str, typer.Option(metavar="3.X", help="The nodes' version of Python.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the archives.")] = Path(
        "bundles"
    ),
    wheels: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A folder with pyrdma's wheel. Default: the wheel is built from the source tree.",
        ),
    ] = None,
    glibc: Annotated[
        str, typer.Option(metavar="2.X", help="The oldest glibc of the nodes.")
    ] = "2.35",
    controller: Annotated[
        bool,
        typer.Option("--controller", help="Also what whole experiments need: tables and figures."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Look for newer versions of the dependencies.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make one archive with all that a node runs, and print its path.

    The archive DIGEST.tar.gz has the program bin/pyrdma and all packages. A node needs Python, but
    no pip, compiler or network. The same sources give the same archive, and a second call returns
    it at once.
    """
    from pyrdma.deploy.bundle import bundle

    made = bundle(python, out, wheels, glibc, controller, again)
    if not made.compiled:
        terminal.say(
            f"Python {made.python} is not here, so the archive has no bytecode: each start of a "
            "node compiles the modules, which takes some seconds"
        )
    if as_json:
        terminal.print_json(asdict(made))
        return
    print(made.archive)
