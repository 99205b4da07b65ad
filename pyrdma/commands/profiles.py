"""The command ``profiles``: the testbeds, and the parameters of one after inheritance."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import terminal
from .terminal import Json

if TYPE_CHECKING:
    from pyrdma.profiles import Profile

__all__ = ["register"]

HEAD = ("name", "title", "testbed", "nodes", "cores_per_node", "cpu_model", "nic_model")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("profiles")(show_profiles)


def show_profiles(
    profile: Annotated[
        str | None, typer.Argument(metavar="[PROFILE]", help="A name, or a TOML file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the profiles, or the parameters of one with unit, source and the file that states it."""
    from pyrdma.profiles import Profile, names

    if profile is None:
        _list([Profile.load(name) for name in names()], as_json)
    else:
        _show(Profile.load(profile), as_json)


def _head(profile: Profile) -> dict[str, Any]:
    return {key: getattr(profile, key) for key in HEAD}


def _list(profiles: list[Profile], as_json: bool) -> None:
    if as_json:
        terminal.print_json([_head(profile) for profile in profiles])
        return
    table = terminal.table("name", "nodes", "cores", "NIC", "title", widest={"NIC": 60})
    for p in profiles:
        table.add_row(p.name, str(p.nodes), str(p.cores_per_node), p.nic_model, p.title)
    terminal.print_table(table)


def _show(profile: Profile, as_json: bool) -> None:
    head = {**_head(profile), "path": str(profile.path), "digest": profile.digest()}
    if as_json:
        parameters = {key: asdict(found) for key, found in profile.parameters.items()}
        terminal.print_json({**head, "parameters": parameters})
        return
    for key, value in head.items():
        print(f"{key:15} {value}")
    columns = ("parameter", "value", "unit", "file", "source")
    table = terminal.table(*columns, widest={"source": 100})
    for key, found in profile.parameters.items():
        table.add_row(key, f"{found.value:.15g}", found.unit, found.file, found.source)
    terminal.print_table(table)
