"""What the command line prints: words to a person, tables, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["print_json", "print_table", "say", "table"]


def say(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """Print a document on standard output; what JSON does not know as text."""
    print(json.dumps(document, indent=1, default=str))


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal; where there is none, as a wide one."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 200
    # What is shown may hold brackets, which are no markup.
    Console(width=wide, highlight=False, markup=False).print(table)


def table(*columns: str, widest: Mapping[str, int] | None = None) -> Table:
    """Return an empty table; columns in `widest` fold at that width, the others never."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        width = (widest or {}).get(column)
        table.add_column(column, overflow="fold", max_width=width, no_wrap=width is None)
    return table
