"""The files that the rules read, and the text of a C++ file without comments and strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {"build", "dist", "results", "__pycache__"}
SUFFIXES = {".cc", ".h", ".c", ".py", ".pyi", ".sh", ".cmake", ".toml", ".yaml", ".yml", ".md"}

# Strings first, so that a `//` inside one does not begin a comment.
_LEXEME = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/',
    re.DOTALL,
)


@dataclass(frozen=True)
class Source:
    """One file of the tree: its path from the root, with forward slashes, and its text."""

    path: str
    text: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders of the path and the file's name."""
        return tuple(self.path.split("/"))

    @property
    def code(self) -> str:
        """The text of a C++ file without comments and string contents, lines kept."""

        def blank(match: re.Match[str]) -> str:
            lexeme = match.group()
            if lexeme[0] == '"':
                return '""'
            if lexeme[0] == "'":
                # A digit separator (1'000'000) also looks like a character; either is harmless.
                return "' '"
            return "\n" * lexeme.count("\n")

        return _LEXEME.sub(blank, self.text)

    def matches(
        self, pattern: re.Pattern[str], text: str | None = None
    ) -> Iterator[tuple[int, str]]:
        """Line numbers and texts of a pattern's matches."""
        for number, line in enumerate((self.text if text is None else text).splitlines(), 1):
            for match in pattern.finditer(line):
                yield number, match.group()


def sources(root: Path = ROOT) -> list[Source]:
    """All files that the rules apply to."""
    found = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if any(part in SKIPPED_FOLDERS or part.startswith(".") for part in relative.parts):
            continue
        if path.is_file() and (path.suffix in SUFFIXES or path.name == "CMakeLists.txt"):
            found.append(Source(relative.as_posix(), path.read_text(encoding="utf-8")))
    return found
