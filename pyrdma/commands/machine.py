"""The commands on this machine: `pyrdma devices` and `pyrdma doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from . import terminal
from .terminal import Json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("devices")(show_devices)
    app.command("doctor")(show_doctor)


def show_devices(
    wish: Annotated[
        str, typer.Argument(metavar="[DEVICE[:PORT[:GID]] | ADDRESS]", help="The device to use.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List the RDMA devices with ports and GIDs; name the one that pyrdma would use, and why."""
    from pyrdma import devices
    from pyrdma.errors import Unavailable

    found = devices.entries()
    try:
        chosen = devices.choose(devices.Wish.parse(wish))
        reason = f"pyrdma would use: {chosen['reason']}"
    except Unavailable as error:
        chosen, reason = None, str(error)
    if as_json:
        document = {"devices": [vars(entry) for entry in found], "chosen": chosen, "reason": reason}
        terminal.print_json(document)
        return
    widest = {"address": 40, "state": 60}
    table = terminal.table(
        "device", "port", "GID", "type", "address", "interface", "state", "MTU", widest=widest
    )
    for e in found:
        if e.problem:
            table.add_row(e.device, *[""] * 5, e.problem, "")
            continue
        state = ("up" if e.active else "down") + (", login network" if e.login else "")
        table.add_row(
            e.device,
            str(e.port),
            str(e.gid_index),
            e.type,
            e.address or e.gid,
            e.interface,
            state,
            str(e.mtu),
        )
    terminal.print_table(table)
    print(reason)


def show_doctor(as_json: Json = False) -> None:
    """Show what this machine can do, and the commands that install the rest."""
    from pyrdma.doctor import checks

    found = checks()
    if as_json:
        terminal.print_json([vars(check) for check in found])
        return
    table = terminal.table("subject", "", "found", widest={"found": 76})
    for check in found:
        table.add_row(check.name, "yes" if check.ok else "no", check.found)
    terminal.print_table(table)
    lacking = [check for check in found if check.remedy or check.note]
    if lacking:
        print("To install what is missing, run the commands that you need:\n")
    for check in lacking:
        print(f"# {check.name}{': ' if check.note else ''}{check.note}")
        if check.remedy:
            print(check.remedy)
