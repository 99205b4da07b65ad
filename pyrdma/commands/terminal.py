"""Helpers of the commands: options, and output of lines, tables, JSON and progress."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pyrdma.claims import Claim

__all__ = [
    "INTERRUPTED",
    "Json",
    "Judging",
    "Out",
    "Progress",
    "cell",
    "listed",
    "print_json",
    "print_table",
    "progress",
    "published",
    "say",
    "say_broken",
    "shortened",
    "show_warning",
    "table",
    "text_of",
    "width",
]

Json = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
Judging = Annotated[
    str,
    typer.Option(
        "--fabric",
        help="Where the results come from that decide the claims: FABRIC, FABRIC@TESTBED, or "
        "FABRIC@TESTBED/HOST of hosts that measured apart.",
    ),
]
Out = Annotated[Path, typer.Option("--out", "--results", help="Folder of the results.")]

INTERRUPTED = 130
"""Exit status after Ctrl-C, the same as in shells."""

Progress = Callable[[int, int, str], None]
"""Function of the number of steps done, the number of all steps, and a line about the last."""


def say(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def say_broken() -> None:
    """Name on standard error the experiments whose files cannot be loaded."""
    from pyrdma import registry

    for name, reason in registry.broken().items():
        say(f"pyrdma: {name} cannot be loaded: {reason}")


def show_warning(message: Warning | str, kind: type[Warning], *_: object) -> None:
    """Print a warning as one line, without the source that Python shows."""
    say(f"pyrdma: {message}" if kind.__module__.startswith("pyrdma") else f"warning: {message}")


def print_json(document: Any) -> None:
    """Print a document on standard output; values of other types than JSON's become text."""
    print(json.dumps(document, indent=1, default=str))


def width() -> int:
    """Return the columns of the terminal; 100 without a terminal."""
    return shutil.get_terminal_size(fallback=(100, 24)).columns


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, which ends with … if some are left out."""
    return text if len(text) <= most else f"{text[: max(most - 1, 0)]}…"


def listed(label: str, words: Iterable[str], indent: int = 4) -> Iterator[str]:
    """Yield lines of a label and words, folded with a hanging indent; no word is broken."""
    yield from textwrap.wrap(
        f"{label} {' '.join(words)}",
        width() - 2,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def cell(value: Any) -> str:
    """Return a value as the cell of a table: four digits of a number, ``a to b`` of a range."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.4g}"
    if isinstance(value, list):
        return " to ".join(cell(v) for v in value)
    return str(value)


def published(claim: Claim, unit: str | None = None) -> str:
    """Return the number of a claim in `unit`, or in its own: a value, a range or a bound."""
    from pyrdma.units import convert

    ends = claim.value if isinstance(claim.value, list) else [claim.value]
    texts = [cell(v if unit is None else convert(float(v), claim.unit, unit)) for v in ends]
    if claim.bound is None:
        return " to ".join(texts)
    return f"<= {texts[-1]}" if claim.bound == "upper" else f">= {texts[0]}"


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or 200 columns wide without a terminal."""
    _console().print(table)


def text_of(table: Table) -> str:
    """Return a table as `print_table` prints it."""
    console = _console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n") + "\n"


def _console() -> Console:
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 200
    # Cells may hold brackets, which are not markup.
    return Console(width=wide, highlight=False, markup=False)


def table(*columns: str, widest: Mapping[str, int] | None = None) -> Table:
    """Return an empty table; columns in `widest` fold at that width, the others never."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        width = (widest or {}).get(column)
        table.add_column(column, overflow="fold", max_width=width, no_wrap=width is None)
    return table


@contextmanager
def progress(name: str) -> Iterator[Progress | None]:
    """Show a progress bar on a terminal; show nothing without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(name, total=None, last="")

        def advance(done: int, total: int, last: str) -> None:
            bars.update(task, completed=done, total=total, last=last)

        yield advance
