"""Builds the executable that holds every mutant of a list.

The folders of the system, and those of the files that the list changes, are compiled; the changed
files come from a copy. All other objects are those of a build, mostly build/release.
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
HERE = Path(__file__).resolve().parent

# The scenarios use none of these folders of a system.
UNUSED = {"bindings", "workloads"}


def build(system: str, mutants: Sequence[Mutant]) -> Path:
    """Build what has changed; return the executable."""
    scratch = ROOT / "build" / "mutants" / system
    if said := _build(system, mutants, scratch, ["scenario"]):
        raise ListError(f"the build of the mutants fails:\n{said[-6000:]}")
    return scratch / "scenario"


def build_compiling(
    system: str, mutants: Sequence[Mutant], count: int
) -> tuple[Path, list[Mutant]]:
    """Build the first `count` mutants that compile; return their executable, and them."""
    scratch = ROOT / "build" / "mutants" / f"{system}-machine"
    spare = 2 + count // 8  # a few do not compile; with spare ones a second build is enough
    tried = list(mutants[: count + spare])
    following = len(tried)
    while said := _build(system, tried, scratch, ["scenario"]):
        wrong = blamed(said, scratch)
        if not wrong:
            raise ListError(f"the build of the mutants fails:\n{said[-6000:]}")
        tried = [mutant for mutant in tried if mutant.number not in wrong]
        if len(tried) < count:
            more = mutants[following : following + count - len(tried) + spare]
            tried += more
            following += len(more)
    return scratch / "scenario", tried[:count]


def build_tests(system: str, mutants: Sequence[Mutant], preset: str) -> Path:
    """Build the native tests of a system's folders with mutants; return the executable.

    The environment variable PYRDMA_MUTANT turns a mutant on. The tests themselves are not compiled
    again: one that has inlined a function of a header has the correct one.
    """
    scratch = ROOT / "build" / "mutants" / f"{system}-{preset}"
    if not (ROOT / "build" / preset / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", preset], cwd=ROOT, capture_output=True, check=True)
    if said := _build(system, mutants, scratch, ["tests"], preset):
        raise ListError(f"the build of the tests with mutants fails:\n{said[-6000:]}")
    return scratch / "tests"


def blamed(said: str, scratch: Path) -> set[int]:
    """Return the mutants at the places that the messages of the compiler name."""
    place = rf"^({re.escape(str(scratch))}/native/[^:\n]+):(\d+):\d+: +(?:error|required)"
    wrong: set[str] = set()
    for file, line in set(re.findall(place, said, re.MULTILINE)):
        lines = Path(file).read_text(encoding="utf-8").split("\n")[: int(line)]
        marked = [found for text in lines if (found := re.findall(r"PYRDMA_MUTANT\((\d+)", text))]
        wrong.update(marked[-1] if marked else [])
    return {int(number) for number in wrong}


def _build(
    system: str,
    mutants: Sequence[Mutant],
    scratch: Path,
    programs: Sequence[str],
    preset: str = "release",
) -> str:
    """Build what has changed; return the messages of a build that failed, or an empty text."""
    base = ROOT / "build" / preset
    copies = _copy(mutants, scratch)
    compiler, flags, linked = compiled(preset)
    flags = ["-I" + str(scratch), "-I" + str(scratch / "native"), *flags, "-O1", "-w"]
    units = _units(system, mutants, copies, scratch)
    own = {"scenario": [str(HERE / "scenario.cc")], "tests": [str(HERE / "chosen.cc")]}
    target = "native_tests" if "tests" in programs else "libpyrdma_programs.a"
    if said := _run_ninja(base, [f"native/{target}"]):
        return said
    objects = (base / "native" / "CMakeFiles" / "native_tests.dir").rglob("*.o")
    own["tests"] += sorted(
        str(o) for o in objects if re.search(rf"systems[_/]{system}[_/]", str(o))
    )
    own = {program: own[program] for program in programs}
    _write(scratch / "build.ninja", _ninja(compiler, flags, linked, units, own))
    return _run_ninja(scratch, ["-k0", *programs])


def _run_ninja(folder: Path, words: Sequence[str]) -> str:
    """Run ninja; return its messages if it fails."""
    built = subprocess.run(
        ["ninja", "-C", str(folder), *words], capture_output=True, text=True, check=False
    )
    return "" if built.returncode == 0 else built.stdout + built.stderr


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
    units = []
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


def compiled(preset: str) -> tuple[str, list[str], dict[str, list[str]]]:
    """Return compiler and flags of a build, and what it links to a program and to tests."""
    base = ROOT / "build" / preset
    linked = {}
    try:
        commands = json.loads((base / "compile_commands.json").read_text(encoding="utf-8"))
        ninja = (base / "build.ninja").read_text(encoding="utf-8")
    except FileNotFoundError:
        ninja = ""
    for found in re.findall(r"LINK_LIBRARIES = (native/libpyrdma_programs\.a .*)", ninja):
        libraries = [str(base / w) if w.startswith("native/") else w for w in found.split()]
        linked["tests" if "gtest" in found else "scenario"] = libraries
    if set(linked) != {"scenario", "tests"}:
        how = "native" if preset == "release" else preset
        raise ListError(f"{base} has no build; run sh tests/run.sh {how} first")
    words = next(shlex.split(c["command"]) for c in commands if "pyrdma_native.dir" in c["command"])
    words = words[: words.index("-o")]
    compiler = next(i for i, word in enumerate(words) if not word.startswith("-"))
    while words[compiler].endswith("ccache"):
        compiler += 1
    flags = [word for word in words[compiler + 1 :] if not word.startswith(("-W", "-O"))]
    return " ".join(words[: compiler + 1]), flags, linked


def _ninja(
    compiler: str,
    flags: list[str],
    linked: dict[str, list[str]],
    units: list[Path],
    programs: dict[str, list[str]],
) -> str:
    """Return a build of the units, and of programs from them, own sources and objects."""
    sanitizers = [flag for flag in flags if flag.startswith("-fsanitize=")]
    sources = {Path(each) for own in programs.values() for each in own if each.endswith(".cc")}
    lines = [
        "rule compile",
        f"  command = {compiler} {shlex.join(flags)} -MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {compiler} {shlex.join(sanitizers)} -pthread $in $libraries -o $out",
        *(f"build {unit.stem}.o: compile {unit}" for unit in [*units, *sorted(sources)]),
    ]
    for program, own in programs.items():
        names = [f"{Path(each).stem}.o" if each.endswith(".cc") else each for each in own]
        names += [f"{unit.stem}.o" for unit in units]
        archives = [library for library in linked[program] if "/native/lib" in library]
        lines += [
            f"build {program}: link {' '.join(names)} | {' '.join(archives)}",
            f"  libraries = {' '.join(linked[program])}",
        ]
    return "\n".join([*lines, ""])


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this text, so that only changed files are compiled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
