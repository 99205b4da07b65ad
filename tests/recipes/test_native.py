"""The recipes "Add a fault" and "Add a parameter of a profile": followed, built and run.

The simulator alone is built, with both recipes at once: their tests are those of the page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pyrdma import faults, profiles
from pyrdma.profiles import Profile
from tests.errors import raises
from tests.recipes import edit, page
from tests.tidy.profile_rules import claim_roles, profile_sources
from tests.tidy.tree import Source, sources

ROOT = page.ROOT
FAULT_ROW, FAULT_EFFECT, FAULT_TEST = page.blocks("Add a fault")
ROW, VALUE, USE, USE_TEST = page.blocks("Add a parameter of a profile")
# What the simulator stands on.
FOLDERS = ("base", "env", "env/sim", "fabric", "fabric/hooks")
COMPILER = os.environ.get("CXX", "c++")


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def fields(row: str) -> list[str]:
    """Return what stands in a row `X(a, b, "c", ...)`, without quotes."""
    inside = row.strip().removeprefix("X(").removesuffix(")")
    return [
        field.strip().strip('"') for field in re.split(r",(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", inside)
    ]


def compile_all(units: dict[str, list[Path]], native: Path, folder: Path) -> list[Path]:
    """Compile each list of files as one; return the object files."""
    flags = ("-std=c++20", "-O0", "-ffunction-sections", "-fdata-sections")

    def compile_one(name: str) -> Path:
        unit = folder / f"{name}.cc"
        unit.write_text("".join(f'#include "{path.relative_to(native)}"\n' for path in units[name]))
        out = unit.with_suffix(".o")
        done = run(COMPILER, *flags, "-I", native, "-c", unit, "-o", out)
        assert done.returncode == 0, done.stderr[-4000:]
        return out

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, units))


@pytest.mark.slow
def test_recipes_build_and_their_tests_pass(tmp_path: Path) -> None:
    native = tmp_path / "native"
    shutil.copytree(ROOT / "native", native)
    edit.add_row(tmp_path / FAULT_ROW.path, "PYRDMA_FAULTS", FAULT_ROW.text)
    edit.insert_in_function(tmp_path / FAULT_EFFECT.path, FAULT_EFFECT)
    edit.append_tests(tmp_path / FAULT_TEST.path, FAULT_TEST.text)
    edit.add_row(tmp_path / ROW.path, "PYRDMA_SIM_PARAMETERS", ROW.text, fields(ROW.text)[0])
    edit.insert_in_function(tmp_path / USE.path, USE)
    edit.append_tests(tmp_path / USE_TEST.path, USE_TEST.text)

    simulator = [path for path in (native / "fabric/sim").rglob("*") if path.is_dir()]
    folders = [*(native / name for name in FOLDERS), native / "fabric/sim", *simulator]
    units = {
        str(folder.relative_to(native)).replace("/", "_"): [
            path for path in sorted(folder.glob("*.cc")) if not path.name.endswith("_test.cc")
        ]
        for folder in folders
    }
    units["tests"] = [tmp_path / FAULT_TEST.path, tmp_path / USE_TEST.path]
    build = tmp_path / "build"
    build.mkdir()
    objects = compile_all({name: files for name, files in units.items() if files}, native, build)
    program = build / "recipes"
    # The headers of the tests name other providers, which these tests do not use.
    libraries = ("-lgtest", "-lgtest_main", "-lboost_context", "-lpthread", "-ldl")
    done = run(COMPILER, *objects, "-Wl,--gc-sections", *libraries, "-o", program)
    assert done.returncode == 0, done.stderr[-4000:]

    names = [
        ".".join(match)
        for block in (FAULT_TEST, USE_TEST)
        for match in re.findall(r"TEST\((\w+), (\w+)\)", block.text)
    ]
    assert len(names) == 2
    done = run(program, "--gtest_brief=1", f"--gtest_filter={':'.join(names)}")
    assert done.returncode == 0, done.stdout
    assert "2 tests from 2 test suites ran" in done.stdout


def test_parameter_goes_into_the_base_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, key, unit, low, high, _ = fields(ROW.text)
    name = f"{group}.{key}"
    assert name not in profiles.parameters()
    header, line = VALUE.text.strip().split("\n")
    assert header == f"[{group}]"
    folder = tmp_path / VALUE.path
    shutil.copytree(ROOT / VALUE.path, folder)
    for path in list(folder.rglob("base.toml")) or list(folder.glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        assert text.count(f"\n{header}\n") == 1
        text = text.replace(f"\n{header}\n", f"\n{header}\n{line}\n")
        path.write_text(text, encoding="utf-8")

    table: Any = {**profiles.parameters(), name: (unit, float(low), float(high))}
    monkeypatch.setattr(profiles, "parameters", lambda: table)
    monkeypatch.setattr(profiles, "FOLDER", folder)
    monkeypatch.setattr(profiles, "_PARTS", folder / "parts", raising=False)
    for profile in profiles.names():
        assert Profile.load(profile).parameters[name].unit == unit
    edited = [
        Source(path.relative_to(tmp_path).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.toml"))
    ]
    assert profile_sources(edited, claim_roles(sources())) == []


def test_every_fault_is_where_the_recipe_says() -> None:
    """Hold the faults that are there to the list of places in the recipe."""
    files = [file for file in sources() if file.path.endswith((".cc", ".h", ".py"))]
    table = next(file.text for file in files if file.path == FAULT_ROW.path)
    tests = "\n".join(
        file.text for file in files if "_test." in file.path or file.parts[0] == "tests"
    )
    effects = "\n".join(
        file.code
        for file in files
        if re.match(r"native/(env|fabric)/", file.path)
        if "_test." not in file.path and file.path != FAULT_ROW.path
    )
    page_of_faults = (ROOT / "native/fabric/sim/README.md").read_text(encoding="utf-8")
    numbers = set()
    for first, last in re.findall(r"\bF(\d+)(?: to F(\d+))?", page_of_faults):
        numbers |= set(range(int(first), int(last or first) + 1))
    kinds = faults.table()
    assert len(re.findall(r"^  X\(", table, re.MULTILINE)) == len(kinds)
    for kind in kinds:
        key = kind["key"]
        assert int(kind["number"][1:]) in numbers, f"{key}: not in native/fabric/sim/README.md"
        assert re.search(rf"\b{key}\b", tests), f"{key}: no test names it"
        assert re.search(rf"\bFault::{key}\b", effects), f"{key}: has no effect"


def test_readme_counts_the_faults() -> None:
    found = re.search(r"(\d+) kinds of faults", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert found
    assert int(found[1]) == len(faults.table())


def test_a_function_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text("void other() {\n}\n")
    with raises(AssertionError, USE.function):
        edit.insert_in_function(tmp_path, USE)
