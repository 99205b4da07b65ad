"""The recipes "Add a channel" and "Add a system", followed in a copy of the tree.

The copy is built once with both recipes, without optimisation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recipes import edit, page
from tests.tidy import rules
from tests.tidy.tree import sources

ROOT = page.ROOT
ENDPOINT, INCLUDE, BINDING, CLASS, NAMED, SCRIPT = page.blocks("Add a channel")
SYSTEM = page.blocks("Add a system")
COMMANDS = SYSTEM[-1]
# The files that all systems share and that the recipe of a system edits.
SHARED = {"native/systems/list.h", "pyrdma/systems/__init__.py"}

pytestmark = pytest.mark.slow


def run(folder: Path, *words: str) -> str:
    done = attempt(folder, *words)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def attempt(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(folder / "build/python")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def add_channel(tree: Path) -> None:
    (tree / ENDPOINT.path).write_text(ENDPOINT.text, encoding="utf-8")
    bindings = edit.insert_in_function(tree / BINDING.path, BINDING)
    edit.add_include(bindings, INCLUDE.text)
    with (tree / CLASS.path).open("a", encoding="utf-8") as classes:
        classes.write(f"\n\n{CLASS.text}")
    edit.apply_diff(tree / NAMED.path, NAMED.text)


def add_system(tree: Path) -> None:
    for block in SYSTEM[:-1]:
        path = tree / block.path
        if block.language == "diff":
            edit.apply_diff(path, block.text)
        else:
            assert not path.exists(), f"the recipe of a system overwrites {block.path}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


def build(tree: Path) -> None:
    cmake = str(Path(sys.executable).parent / "cmake")
    options = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0", "-DPYRDMA_VERBS=OFF")
    run(tree, cmake, "-S", ".", "-B", "build", "-G", "Ninja", *options)
    run(tree, cmake, "--build", "build", "--target", "_core")
    (module,) = (tree / "build").rglob("_core*.so")
    shutil.copy(module, tree / "pyrdma")
    # An installation in place comes before PYTHONPATH otherwise.
    (tree / "build/python").mkdir()
    (tree / "build/python/sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the tree in which both recipes were followed."""
    folder = tmp_path_factory.mktemp("copy") / "tree"
    left_out = shutil.ignore_patterns(".*", "build", "dist", "results", "__pycache__", "*.so")
    shutil.copytree(ROOT, folder, ignore=left_out)
    add_channel(folder)
    add_system(folder)
    build(folder)
    yield folder
    shutil.rmtree(folder)


def test_two_shared_files_name_a_system() -> None:
    edited = {block.path for block in SYSTEM if block.language == "diff"}
    assert edited == SHARED


def test_every_system_is_named_by_the_shared_files_alone() -> None:
    for file in sources():
        if file.path.startswith(("native/", "pyrdma/")) and not file.path.endswith(".md"):
            own = "loco" in file.path or file.path in SHARED
            assert own or "systems/loco" not in file.text, file.path


def test_the_system_builds_runs_and_is_fuzzed(tree: Path) -> None:
    for line in COMMANDS.text.splitlines():
        words = line.split()
        if words[0] == "sh":
            continue
        run(tree, sys.executable, *(words[1:] if words[0] == "python" else ["-m", *words]))
    results = tree / "results/nothing/turns/sim"
    assert {".parquet", ".json"} <= {path.suffix for path in results.iterdir()}
    assert "nothing/turns" in run(tree, sys.executable, "-m", "pyrdma", "list")


def test_the_systems_deliberate_bug_is_found(tree: Path) -> None:
    words = ("fuzz", "nothing", "--seeds", "2", "--mutation", "lost_turn")
    done = attempt(tree, sys.executable, "-m", "pyrdma", *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "turns" in done.stdout + done.stderr


def test_the_systems_native_test_passes(tree: Path) -> None:
    (test,) = (block.path for block in SYSTEM if block.path.endswith("_test.cc"))
    (library,) = (tree / "build").rglob("libpyrdma_native.a")
    program = str(tree / "build/turn_test")
    compiler = os.environ.get("CXX", "c++")
    flags = ("-std=c++20", "-march=x86-64-v2", "-I", "native")
    libraries = ("-lgtest", "-lgtest_main", "-lboost_context", "-lpthread", "-ldl")
    run(tree, compiler, *flags, test, str(library), *libraries, "-o", program)
    assert "1 test" in run(tree, program)


def test_the_tree_keeps_its_rules(tree: Path) -> None:
    new = {ENDPOINT.path, *(block.path for block in SYSTEM[:-1])}
    every = sources(tree)
    files = [file for file in every if file.path in new]
    for rule in (rules.include_rule, rules.includes_exist, rules.banned_in_systems):
        assert rule(every) == []
    assert rules.pragma_once(files) + rules.system_readmes(every) == []
    python = [path for path in new if path.endswith(".py")]
    for command in (("check",), ("format", "--check")):
        run(tree, sys.executable, "-m", "ruff", *command, "--no-cache", *python)


def test_the_site_has_a_page_of_the_system(tree: Path) -> None:
    words = ("--conf-dir", "docs", "--builder", "html", "--fail-on-warning", "--quiet")
    run(tree, sys.executable, "-m", "sphinx", *words, ".", "build/site")
    assert "Nodes that take turns" in (tree / "build/site/docs/api/nothing.html").read_text()
    assert (tree / "build/site/native/systems/nothing/README.html").exists()


def test_the_channel_works(tree: Path) -> None:
    (tree / "build/flag.py").write_text(SCRIPT.text, encoding="utf-8")
    run(tree, sys.executable, "build/flag.py")
