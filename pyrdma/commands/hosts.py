"""The commands for the hosts of a testbed: `pyrdma hosts` and `pyrdma daemon`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyrdma.errors import InvalidArgument

from . import terminal
from .terminal import Json

__all__ = ["Hosts", "Inventory", "register"]

Inventory = Annotated[
    Path | None,
    typer.Option(help="Ansible's inventory in YAML: the hosts that hold the nodes."),
]
Hosts = Annotated[
    str | None,
    typer.Option(help="Hosts or groups to take, as 'node-[0-3]*' or '!node-3'; all if left out."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("hosts")(show_hosts)
    app.command("daemon")(run_daemon)


def show_hosts(
    inventory: Inventory = Path("hosts.yml"),
    hosts: Hosts = None,
    as_json: Json = False,
) -> None:
    """Show version, device, clock and problems of each host; the status is 1 if one has a problem.

    A problem makes the host useless for fabric verbs. A wish, such as huge pages, is listed below.
    """
    from pyrdma.hosts.report import collect

    assert inventory is not None
    rows = collect(inventory, hosts)
    if as_json:
        terminal.print_json(rows)
    else:
        _print(rows)
    if any(row["problem"] for row in rows):
        raise typer.Exit(1)


def _print(rows: list[dict[str, Any]]) -> None:
    widest = {"device": 40, "problem": 60}
    table = terminal.table("host", "version", "device", "clock", "problem", widest=widest)
    for row in rows:
        table.add_row(*(str(row[n]) for n in ("host", "version", "device", "clock", "problem")))
    terminal.print_table(table)
    wishes: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        for wish in row["wishes"]:
            wishes.setdefault((wish["name"], wish["found"], wish["remedy"]), []).append(row["host"])
    for (name, found, remedy), hosts in wishes.items():
        where = ", ".join(hosts) if len(hosts) < 5 else f"{len(hosts)} hosts"
        print(f"# {where}: {name}: {found}")
        if remedy:
            print(remedy)


def run_daemon(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve the driver that started this by ssh.")
    ] = False,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS:PORT", help="Serve drivers that connect there.")
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="The file, of mode 0600, with the secret of --listen.")
    ] = None,
    programs: Annotated[
        bool,
        typer.Option(
            "--programs",
            help="Let drivers of --listen run node programs and libraries of workloads: any code, "
            "as this user.",
        ),
    ] = False,
) -> None:
    """Hold the nodes of a driver on this host; `pyrdma run --inventory` starts it by itself."""
    from pyrdma.hosts import daemon, listening

    if stdio == bool(listen):
        raise InvalidArgument("give either --stdio or --listen ADDRESS:PORT")
    if stdio:
        daemon.serve_stdio()
        return
    if token_file is None:
        raise InvalidArgument("--listen needs --token-file, a file of mode 0600 with 64 hex digits")
    listening.listen(listen, token_file, programs=programs)
