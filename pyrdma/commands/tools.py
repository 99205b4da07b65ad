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
            help="cpu: this CPU, as lines of a profile. scopes: instructions "
            "and cache lines of each step of a system, with valgrind, in a checkout.",
        ),
    ] = "cpu",
    fabric: Annotated[
        str, typer.Option(metavar="shm|verbs", help="Write a profile of two nodes on this fabric.")
    ] = "",
    device: Annotated[
        str,
        typer.Option(metavar="DEVICE[:PORT[:GID]] | ADDRESS", help="--fabric verbs: the device."),
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="--fabric: the file. Default: FABRIC.toml here.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="scopes: the system; else each.")] = None,
    write: Annotated[bool, typer.Option("--write", help="scopes: renew the lists.")] = False,
    as_json: Json = False,
) -> None:
    """Measure this machine for a profile of it, or count the work of a system's steps.

    With --fabric the command measures two nodes of this machine for one to three minutes, and
    writes a profile with every parameter. The simulator then predicts larger clusters of such
    nodes: pyrdma run EXPERIMENT --profile FILE.
    """
    if fabric:
        calibrate_fabric(fabric, device, out or Path(f"{fabric}.toml"), as_json)
        return
    if device or out is not None:
        raise InvalidArgument("--device and --out need --fabric shm or --fabric verbs")
    if what == "scopes":
        calibrate_scopes(system, write, as_json)
        return
    if what != "cpu":
        raise InvalidArgument(f"calibrate {what!r}: give cpu or scopes")
    from contextlib import closing

    from pyrdma.calibrate import cpu_lines
    from pyrdma.calibrate.machine import LocalMachine

    with closing(LocalMachine("shm")) as machine:
        found = cpu_lines(machine)
    if as_json:
        terminal.print_json([entry.as_dict() for entry in found])
        return
    print("[cpu]")
    for entry in found:
        print(entry.line())


def calibrate_fabric(fabric: str, device: str, out: Path, as_json: bool) -> None:
    """Measure two nodes on a fabric, write their profile, and print how well it agrees."""
    from pyrdma.calibrate import calibrate as measure
    from pyrdma.calibrate.measure import NOISY
    from pyrdma.files import check_output, write_atomically

    if fabric not in ("shm", "verbs"):
        raise InvalidArgument(
            f"--fabric {fabric!r}: only real fabrics are measured; give shm or verbs"
        )
    if device and fabric != "verbs":
        raise InvalidArgument(f"--device {device!r} with --fabric {fabric}, which has no devices")
    if out.suffix != ".toml":
        raise InvalidArgument(f"--out {out}: the name of a profile ends with .toml")
    if out.exists():
        raise InvalidArgument(f"--out {out} exists; remove it, or give another file")
    check_output(out, "--out")
    found = measure(fabric, device)
    write_atomically(out, found.document(out.stem).encode())
    if as_json:
        terminal.print_json({"profile": str(out), **found.as_dict()})
        return
    table = terminal.table("micro-benchmark", "ns", "spread", "simulated", "error", "parameter")
    for row in found.agreements:
        table.add_row(
            row.row.what,
            f"{row.measured:.4g}",
            f"{found.spreads[row.row.what]:.0%}",
            f"{row.simulated:.4g}",
            f"{row.error:+.0%}",
            row.row.parameter or "held out",
        )
    terminal.print_table(table)
    noisy = [name for name, spread in found.spreads.items() if spread > NOISY]
    if noisy:
        terminal.say(
            f"noisy (medians more than {NOISY:.0%} above the lower quartile): {', '.join(noisy)}; "
            "end other programs and measure again"
        )
    print(f"wrote {out}")


def calibrate_scopes(name: str | None, write: bool, as_json: bool) -> None:
    """Count each step; print what differs from the lists, or write the lists again."""
    from pyrdma import scopes, systems

    found = {}
    for system in systems.NAMES if name is None else (name,):
        counts = scopes.measure(system)
        different = scopes.differences(system, counts)
        if write:
            for path in scopes.tables(system):
                path.write_text(scopes.renewed(path, counts), encoding="utf-8")
        rows = {step: cost.row() for step, cost in sorted(counts.steps.items())}
        found[system] = {"covered": counts.covered, "steps": rows, "different": different}
        if not as_json:
            print(f"{system}: {counts.covered:.1%} of the instructions lie in steps")
            for line in different:
                print(line)
    if as_json:
        terminal.print_json(found)
    elif not write and (old := [system for system in found if found[system]["different"]]):
        for system in old:
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
