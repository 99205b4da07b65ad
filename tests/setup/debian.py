"""Debian's packages on this machine: the owner of a file, and the dependencies of a package."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def owners(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the package of each file; files that no package owns are left out."""
    wanted: dict[str, set[Path]] = {}
    for path in paths:
        real = str(path.resolve())
        # Before /bin and /lib were links into /usr, packages listed their files there.
        for name in (real, real.removeprefix("/usr")):
            wanted.setdefault(name, set()).add(path)
    found: dict[Path, str] = {}
    names = sorted(wanted)
    for first in range(0, len(names), 500):
        for line in _output("dpkg", "-S", *names[first : first + 500]).splitlines():
            packages, _, name = line.partition(": ")
            if name in wanted and not line.startswith("diversion"):
                owner = packages.split(",")[0].split(":")[0]
                found |= dict.fromkeys(wanted[name], owner)
    return found


class Installed:
    """The installed packages, each with its dependencies."""

    def __init__(self) -> None:
        fields = ("Package", "Essential", "Provides", "Pre-Depends", "Depends", "Status")
        rows = _output("dpkg-query", "-W", "-f", "\t".join(f"${{{f}}}" for f in fields) + "\n")
        self._needs: dict[str, list[str]] = {}
        self._essential = set()
        providers: dict[str, list[str]] = {}
        for row in rows.splitlines():
            name, essential, provides, before, depends, status = row.split("\t")
            if not status.endswith(" installed"):
                continue
            if essential == "yes":
                self._essential.add(name)
            self._needs[name] = _names(f"{before},{depends}")
            for virtual in _names(provides):
                providers.setdefault(virtual, []).append(name)
        for name, needs in self._needs.items():
            self._needs[name] = [real for need in needs for real in providers.get(need, [need])]
            self._needs[name] += [need for need in needs if need in self._needs]

    def with_dependencies(self, packages: Iterable[str]) -> set[str]:
        """Return these packages with all dependencies, without recommended packages."""
        found: set[str] = set()
        left = [*packages, *self._essential, "apt"]
        while left:
            name = left.pop()
            if name not in found and name in self._needs:
                found.add(name)
                left += self._needs[name]
        return found


def _names(field: str) -> list[str]:
    """Return the names in a list of dependencies, with all alternatives of each."""
    return [name for name in re.split(r"[,|]", re.sub(r"\([^)]*\)|:\w+|\s", "", field)) if name]
