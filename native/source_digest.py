"""Writes the digest of the native sources, as a C++ file of the Python module.

The build runs it after each change of a source: ``python native/source_digest.py OUTPUT FLAG...``.

Hosts compare the digest, and a stored measurement is stale when it changes. So it is equal for
every Python that the module is built for. It covers the sources of the module without comments and
blank lines, and the compiler's flags. It does not cover tests, pages, the compiler, and libraries
of the system. A build without the provider for real NICs has the same digest as one with it.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

# Strings first, so that a `//` inside one does not begin a comment. A quote after a digit separates
# digits (1'000'000).
_LEXEME = re.compile(
    r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\''
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)",
    re.DOTALL,
)


def sources(folder: Path = FOLDER) -> list[Path]:
    """Return the files that the digest covers, sorted."""
    own = [path for path in folder.rglob("*") if re.search(r"(?<!_test)\.(cc|h)$", path.name)]
    # The folder calibration is a program of its own.
    return sorted(path for path in own if path.relative_to(folder).parts[0] != "calibration")


def digest(flags: str, folder: Path = FOLDER) -> str:
    """Return the digest of the sources below `folder`, compiled with `flags`."""
    lines = [f"flags {flags}"]
    for path in sources(folder):
        text = code(path.read_text(encoding="utf-8"))
        lines.append(f"{path.relative_to(folder).as_posix()} {_hash(text)}")
    return _hash("\n".join(lines))


def code(text: str) -> str:
    """Return C++ without comments, blank lines, and spaces at the ends of lines."""
    text = _LEXEME.sub(lambda match: " " if match["comment"] else match[0], text)
    return "\n".join(stripped for line in text.splitlines() if (stripped := line.strip()))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main(output: str, *flags: str) -> None:
    """Write the C++ file."""
    found = digest(" ".join(flags))
    Path(output).write_text(
        f'namespace pyrdma::bindings {{\nconst char* source_digest() {{ return "{found}"; }}\n}}\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
