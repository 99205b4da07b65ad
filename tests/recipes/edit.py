"""The edits of the native recipes, on the text of a copy."""

from __future__ import annotations

import re
from pathlib import Path

from tests.recipes.page import Block


def add_row(path: Path, macro: str, row: str, group: str = "") -> None:
    """Add a row to a table, `#define MACRO(X)`, behind the last row (of `group`)."""
    lines = path.read_text(encoding="utf-8").split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith(f"#define {macro}(X)"))
    last = first
    while lines[last].endswith("\\"):
        last += 1
    table = range(first + 1, last + 1)
    place = max(i for i in table if lines[i].lstrip().startswith(f"X({group}"))
    lines[place] = lines[place].removesuffix("\\").rstrip() + " \\"
    continued = " \\" if place < last else ""
    lines.insert(place + 1, f"  {row.strip()}{continued}")
    path.write_text("\n".join(lines), encoding="utf-8")


def insert_in_function(folder: Path, block: Block) -> Path:
    """Insert a block at the beginning of the function that it names; return the file."""
    opening = re.compile(rf"^\S.*\b{block.function}\([^;{{}}]*\)[^;{{}}]*\{{\n", re.MULTILINE)
    for path in sorted(folder.rglob("*.cc")):
        text = path.read_text(encoding="utf-8")
        found = opening.search(text)
        if found:
            path.write_text(text[: found.end()] + block.text + text[found.end() :], "utf-8")
            return path
    raise AssertionError(
        f"CONTRIBUTING.md: no file below {block.path} defines {block.function}; name another "
        "function, where the block of the recipe can stand"
    )


def append_tests(path: Path, text: str) -> None:
    """Add tests at the end of the unnamed namespace of a test file."""
    source = path.read_text(encoding="utf-8")
    place = source.rindex("}  // namespace\n")
    path.write_text(f"{source[:place]}{text}\n{source[place:]}", encoding="utf-8")


def apply_diff(path: Path, diff: str) -> None:
    """Replace the lines of each hunk; a blank line ends a hunk."""
    text = path.read_text(encoding="utf-8")
    for hunk in diff.strip("\n").split("\n\n"):
        lines = hunk.split("\n")
        old = "".join(f"{line[1:]}\n" for line in lines if line[0] in "- ")
        new = "".join(f"{line[1:]}\n" for line in lines if line[0] in "+ ")
        assert text.count(old) == 1, f"{path}: the lines of the recipe are not there once:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def add_include(path: Path, line: str) -> None:
    """Add an include behind the includes of the file's own project."""
    lines = path.read_text(encoding="utf-8").split("\n")
    last = max(i for i, text in enumerate(lines) if text.startswith('#include "'))
    lines.insert(last + 1, line.strip())
    path.write_text("\n".join(lines), encoding="utf-8")
