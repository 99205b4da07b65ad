"""The command ``inventory``: an Ansible inventory from the manifest of a CloudLab experiment."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pyrdma.errors import InvalidArgument

from . import terminal

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("inventory")(write_inventory)


def write_inventory(
    manifest: Annotated[
        Path,
        typer.Argument(metavar="MANIFEST.xml", help="The manifest, from the experiment's page."),
    ],
    user: Annotated[
        str, typer.Option(help="Your name in the project. Default: its only member.")
    ] = "",
    lan: Annotated[
        str, typer.Option(help="Name of the LAN to measure. Default: that of the most hosts.")
    ] = "",
    testbed: Annotated[
        str, typer.Option(help="Name of the testbed. Default: its site and hardware type.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="hosts.yml", help="The file. Default: standard output.")
    ] = None,
) -> None:
    """Write the Ansible inventory of a CloudLab experiment from its GENI manifest.

    Each node becomes a host with your login, its address in one LAN, its hardware type and its
    machine. Standard error says which LAN was chosen and why, and what a host lacks.
    """
    from pyrdma.cloudlab import inventory
    from pyrdma.files import write_atomically

    if out is not None and out.exists():
        raise InvalidArgument(f"--out {out} exists; remove it, or give another file")
    found = inventory(manifest, user, lan, testbed)
    choices = {"user": found.user, "lan": found.lan, "testbed": found.testbed}
    words = ["pyrdma", "inventory", str(manifest)]
    for option, value in choices.items():
        words += [f"--{option}", value] if value else []
    made_by = "".join(c if c.isprintable() else "?" for c in shlex.join(words))
    text = f"# Made by: {made_by}\n{found.yaml()}"
    for note in found.notes:
        terminal.say(note)
    if out is None:
        print(text, end="")
        return
    write_atomically(out, text.encode())
    terminal.say(f"wrote {out}: {len(found.hosts)} hosts of the testbed {found.testbed}")
