"""The recipes of CONTRIBUTING.md: their code blocks, each with the file that the text names."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
# The files that all systems share and that the recipe of a system edits.
SHARED = ("native/systems/list.h", "pyrdma/systems/__init__.py")

_BLOCK = re.compile(r"^( *)(`{3,})(\w+)\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`([\w.-]+/[\w./-]*)`")
_FUNCTION = re.compile(r"at\s+the\s+beginning\s+of\s+`(\w+)`")


@dataclass(frozen=True)
class Block:
    """A code block of a recipe.

    Attributes
    ----------
    path
        The last path between the block and the one before it; empty if there is none.
    function
        The function at whose beginning the block stands; empty if the text names none.
    """

    language: str
    text: str
    path: str
    function: str


def titles() -> list[str]:
    """Return the titles of all recipes."""
    recipes = PAGE.read_text(encoding="utf-8").partition("\n## Recipes\n")[2]
    return re.findall(r"^### (.+)$", recipes.partition("\n## ")[0], re.MULTILINE)


def blocks(title: str) -> list[Block]:
    """Return the code blocks of a recipe, in order."""
    page = PAGE.read_text(encoding="utf-8")
    recipe = page.partition(f"\n### {title}\n")[2]
    recipe = re.split(r"^##", recipe, maxsplit=1, flags=re.MULTILINE)[0]
    found, end = [], 0
    for match in _BLOCK.finditer(recipe):
        before = recipe[end : match.start()]
        paths, functions = _PATH.findall(before), _FUNCTION.findall(before)
        found.append(
            Block(
                match[3],
                textwrap.dedent(match[4]),
                paths[-1] if paths else "",
                functions[-1] if functions else "",
            )
        )
        end = match.end()
    return found
