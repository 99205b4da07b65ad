"""Builds the executable that holds every mutant of a list.

The folders of the system, and those of the files that the list changes, are compiled; the changed
files come from a copy. All other objects are those of build/release.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.schemata import HEADER, HEADER_TEXT, ListError, Mutant, schema

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build" / "release"
HERE = Path(__file__).resolve().parent

# The scenarios use none of these folders of a system.
UNUSED = {"bindings", "workloads"}


def build(system: str, mutants: Sequence[Mutant]) -> Path:
    """Build what has changed; return the executable."""
    scratch = ROOT / "build" / "mutants" / system
    copies = _copy(mutants, scratch)
    compiler, flags, libraries = _release()
    units = _units(system, mutants, copies, scratch)
    flags = ["-I" + str(scratch), "-I" + str(scratch / "native"), *flags, "-O1", "-w"]
    _write(scratch / "build.ninja", _ninja(compiler, flags, libraries, units))
    for folder in (RELEASE, scratch):
        target = ["native/libpyrdma_programs.a"] if folder == RELEASE else ["scenario"]
        built = subprocess.run(
            ["ninja", "-C", str(folder), *target], capture_output=True, text=True, check=False
        )
        if built.returncode != 0:
            raise ListError(
                f"the build of the mutants fails:\n{built.stdout[-6000:]}{built.stderr}"
            )
    return scratch / "scenario"


def _copy(mutants: Sequence[Mutant], scratch: Path) -> dict[str, Path]:
    """Write the files with their mutants; return the copies by path."""
    copies = {}
    for file in sorted({mutant.file for mutant in mutants}):
        text = (ROOT / file).read_text(encoding="utf-8")
        copies[file] = scratch / file
        _write(scratch / file, schema(text, [m for m in mutants if m.file == file]))
    for old in [*(scratch / "native").rglob("*.h"), *(scratch / "native").rglob("*.cc")]:
        if old not in copies.values():
            old.unlink()
    _write(scratch / HEADER, HEADER_TEXT)
    return copies


def _units(
    system: str, mutants: Sequence[Mutant], copies: dict[str, Path], scratch: Path
) -> list[Path]:
    """Write a unit per folder; return the units."""
    own = ROOT / "native" / "systems" / system
    folders = {(ROOT / mutant.file).parent for mutant in mutants}
    folders |= {file.parent for file in own.rglob("*.cc")}
    units = [HERE / "scenario.cc"]
    for folder in sorted(folders):
        path = folder.relative_to(ROOT)
        sources = [file for file in sorted(folder.glob("*.cc")) if not file.stem.endswith("_test")]
        if not sources or UNUSED & set(path.parts):
            continue
        unit = scratch / ("unit_" + "_".join(path.parts) + ".cc")
        names = [str(file.relative_to(ROOT)) for file in sources]
        files = [copies.get(name, ROOT / name) for name in names]
        _write(unit, "".join(f'#include "{file}"\n' for file in files))
        units.append(unit)
    return units


def _release() -> tuple[str, list[str], list[str]]:
    """Return compiler, flags and libraries of build/release."""
    try:
        commands = json.loads((RELEASE / "compile_commands.json").read_text(encoding="utf-8"))
        ninja = (RELEASE / "build.ninja").read_text(encoding="utf-8")
        linked = re.findall(r"LINK_LIBRARIES = (native/libpyrdma_programs\.a .*)", ninja)[0].split()
    except (FileNotFoundError, IndexError):
        raise ListError(f"{RELEASE} has no build; run sh tests/run.sh native first") from None
    words = next(shlex.split(c["command"]) for c in commands if "pyrdma_native.dir" in c["command"])
    words = words[: words.index("-o")]
    compiler = next(i for i, word in enumerate(words) if not word.startswith("-"))
    while words[compiler].endswith("ccache"):
        compiler += 1
    flags = [word for word in words[compiler + 1 :] if not word.startswith(("-W", "-O"))]
    libraries = [str(RELEASE / word) if word.startswith("native/") else word for word in linked]
    return " ".join(words[: compiler + 1]), flags, libraries


def _ninja(compiler: str, flags: list[str], libraries: list[str], units: list[Path]) -> str:
    objects = [f"{unit.stem}.o" for unit in units]
    lines = [
        "rule compile",
        f"  command = {compiler} {shlex.join(flags)} -MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {compiler} -pthread $in {' '.join(libraries)} -o $out",
        *(f"build {name}: compile {unit}" for name, unit in zip(objects, units, strict=True)),
        f"build scenario: link {' '.join(objects)} | {' '.join(libraries[:2])}",
        "",
    ]
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this text, so that only changed files are compiled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
