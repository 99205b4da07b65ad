"""The commands ``fuzz`` and ``replay`` of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import terminal, timelines
from .terminal import Json, Out

__all__ = ["register"]

System = Annotated[
    str,
    typer.Argument(
        metavar="SYSTEM",
        help="The system to fuzz, such as fabric, or a Python file with a protocol.",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        min=2, max=32, help="Number of nodes. Default: drawn by each seed; a file's protocol's own."
    ),
]
Operations = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        help="Operations of all clients together. Default: drawn by each seed. A file decides "
        "them itself.",
    ),
]
Virtual = Annotated[
    float | None,
    typer.Option(
        "--duration", help="Of a file: virtual seconds after which a run ends in good order."
    ),
]
ProfileName = Annotated[str, typer.Option("--profile", help="Name of a profile, or a TOML file.")]
Memory = Annotated[
    str | None, typer.Option(help="weak or strong. Default: drawn by each seed, mostly weak.")
]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A setting such as loss.rate=0.01; none turns all faults off. "
        "Default: random by seed.",
    ),
]
Kinds = Annotated[
    str | None, typer.Option(help="The only kinds of faults that stay on: loss,delay,...")
]
Mutation = Annotated[
    str,
    typer.Option(
        help="A deliberate bug that the run must find, by its name. An unknown name lists the bugs "
        "of the system."
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        help="A preset of the system, such as paper. Default: drawn by each seed. An unknown name "
        "lists the presets of the system."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("fuzz")(fuzz_system)
    app.command("replay")(replay_seed)


def fuzz_system(
    system: System,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 1000,
    first: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The first seed.")] = 1,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; one per core by default.")
    ] = None,
    nodes: Nodes = None,
    operations: Operations = None,
    profile: ProfileName = "cx5",
    memory: Memory = None,
    faults: Faults = None,
    kinds: Kinds = None,
    mutation: Mutation = "",
    preset: Preset = "",
    duration: Virtual = None,
    twice: Annotated[
        bool, typer.Option(help="Run each seed twice; both runs must be equal.")
    ] = False,
    coverage: Annotated[
        bool,
        typer.Option(
            help="List the rare branches, effects of faults and end checks that no seed reached; "
            "exit status 1 if there are any."
        ),
    ] = False,
    out: Out = Path("results"),
    as_json: Json = False,
) -> None:
    """Run a simulated system, or a protocol in Python, from many seeds under random faults.

    Exit status: 0 no violation, 1 a violation, an end check that too few seeds made, or more
    histories that the checker gave up on than the check's least share allows (a file: any).
    """
    from .fuzz_output import fuzz_command, options_of

    options = options_of(
        *(system, nodes, operations, profile, memory, faults or [], kinds, None, mutation, preset),
        duration,
    )
    with terminal.progress(f"fuzz {system}") as progress:
        status = fuzz_command(options, seeds, first, jobs, out, twice, coverage, as_json, progress)
    raise typer.Exit(status)


def replay_seed(
    system: System,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)],
    nodes: Nodes = None,
    operations: Operations = None,
    profile: ProfileName = "cx5",
    memory: Memory = None,
    faults: Faults = None,
    kinds: Kinds = None,
    keep: Annotated[
        str | None,
        typer.Option(help="The only operations to execute: 3,5-9, or @PATH for a file of them."),
    ] = None,
    mutation: Mutation = "",
    preset: Preset = "",
    duration: Virtual = None,
    trace: Annotated[
        str | None, typer.Option(help="File for the event trace; - for standard output.")
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            help="File for the history, for 'pyrdma check'. Of a system with several kinds of "
            "objects it holds a violated kind, and files beside it hold the others."
        ),
    ] = None,
    timeline: timelines.File = None,
    timeline_window: timelines.Window = "",
    timeline_limit: timelines.Limit = timelines.LIMIT,
    expect: Annotated[str | None, typer.Option(help="Fingerprint that the run must have.")] = None,
    minimise: Annotated[bool, typer.Option(help="Search for fewer faults and operations.")] = False,
    as_json: Json = False,
) -> None:
    """Run one seed of `pyrdma fuzz` again, bit for bit.

    Exit status: 0 no violation, 1 a violation, an undecided history or another fingerprint.
    """
    from .fuzz_output import options_of, replay_command

    options = options_of(
        *(system, nodes, operations, profile, memory, faults or [], kinds, keep, mutation, preset),
        duration,
    )
    recorded = timelines.options_of(timeline, timeline_window, timeline_limit)
    raise typer.Exit(
        replay_command(options, seed, trace, history, recorded, expect, minimise, as_json)
    )
