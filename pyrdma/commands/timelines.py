"""The options of the timeline of a simulated run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyrdma.errors import InvalidArgument

if TYPE_CHECKING:
    from pyrdma.timeline import Options

__all__ = ["LIMIT", "File", "Limit", "Window", "options_of"]

LIMIT = 200_000

File = Annotated[
    Path | None,
    typer.Option(
        "--timeline",
        metavar="FILE",
        help="Record a timeline for Perfetto or chrome://tracing, such as out.json.gz; of a second "
        "cluster, out-2.json.gz.",
    ),
]
Window = Annotated[
    str,
    typer.Option(
        "--timeline-window",
        metavar="FROM-TO",
        help="The virtual time of the timeline: 10us-20us, 10us- or -20us.",
    ),
]
Limit = Annotated[
    int, typer.Option("--timeline-limit", min=1, help="The most slices and marks of the timeline.")
]


def options_of(path: Path | None, window: str, limit: int) -> Options | None:
    """Return the options of a timeline from the command line's values; None without a file."""
    if path is not None:
        from pyrdma.timeline import Options

        return Options(path, window, limit)
    if window or limit != LIMIT:
        raise InvalidArgument("--timeline-window and --timeline-limit need --timeline FILE")
    return None
