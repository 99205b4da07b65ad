"""The recipes "Add a channel" and "Add a system", followed in a copy of the tree.

The copy is built once with both recipes: with the flags of the package's build, whose objects are
in the compiler's cache; or without optimisation if there is no ccache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pybind11
import pytest

from tests.recipes import edit, page
from tests.recipes.test_system_names import is_own
from tests.tidy.tree import sources

ROOT = page.ROOT
ENDPOINT, INCLUDE, BINDING, CLASS, NAMED, SCRIPT = page.blocks("Add a channel")
SYSTEM = page.blocks("Add a system")
COMMANDS = SYSTEM[-1]
# The tests that a system can break without a file of its own among them.
TESTS = (
    "experiments",
    "bench",
    "generated",
    "tidy",
    "systems/nothing",
    "systems/test_public_names.py",
)

# The first test builds the whole module, beside other tests.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(folder: Path, *words: str) -> str:
    done = attempt(folder, *words)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def attempt(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(folder / "build/python")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
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
    options = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0", "-DPYRDMA_VERBS=OFF"]
    headers = Path(pybind11.__file__).parent
    filled_by = ROOT / "build/release/CMakeCache.txt"
    # Earlier versions write absolute paths into unity files, which then miss the cache.
    is_new = int(run(tree, cmake, "--version").split()[2].split(".")[0]) >= 4
    has_cache = shutil.which("ccache") and is_new and filled_by.exists()
    if has_cache and headers.is_relative_to(sys.prefix):
        # The cache sees relative paths, so the folders lie as those of tests/setup_env.sh do. It
        # does not take a link for its target, nor c++ for g++.
        copied = tree / ".venv" / headers.relative_to(sys.prefix)
        shutil.copytree(headers, copied)
        compiler = re.search("^CMAKE_CXX_COMPILER:.*=(.*)$", filled_by.read_text(), re.MULTILINE)
        assert compiler is not None
        options = ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={compiler[1]}"]
        options += [f"-Dpybind11_DIR={copied}/share/cmake/pybind11"]
    options += [f"-DPython_EXECUTABLE={sys.executable}"]
    run(tree, cmake, "-S", ".", "-B", "build/release", "-G", "Ninja", *options)
    run(tree, cmake, "--build", "build/release", "--target", "_core")
    shutil.rmtree(tree / ".venv", ignore_errors=True)
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
    for line in COMMANDS.text.splitlines():
        words = line.split()
        if words[0] != "sh":
            run(folder, sys.executable, *(words[1:] if words[0] == "python" else ["-m", *words]))
    yield folder
    shutil.rmtree(folder)


def test_the_recipe_edits_two_shared_files(tree: Path) -> None:
    of_channel = Path(ENDPOINT.path).parent.name
    before, after = (
        {file.path: file for file in sources(root) if not is_own(of_channel, file)}
        for root in (ROOT, tree)
    )
    assert before.keys() <= after.keys()
    edited = [file for path, file in after.items() if before.get(path) != file]
    assert {file.path for file in edited if not is_own("nothing", file)} == set(page.SHARED)


def test_the_copy_is_green(tree: Path) -> None:
    paths = [f"tests/{path}" for path in TESTS]
    checks = (
        ("pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *paths),
        ("mypy.stubtest", "--allowlist", "tests/stubs.allow", "pyrdma._core"),
        ("ruff", "check", "--no-cache", "."),
        ("ruff", "format", "--no-cache", "--check", "."),
    )
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda words: run(tree, sys.executable, "-m", *words), checks))


def test_the_system_runs(tree: Path) -> None:
    results = tree / "results/nothing/turns/sim"
    assert {".parquet", ".json", ".png"} <= {path.suffix for path in results.iterdir()}
    listed = run(tree, sys.executable, "-m", "pyrdma", "list")
    assert "nothing/turns" in listed


def test_the_systems_deliberate_bug_is_found(tree: Path) -> None:
    words = ("fuzz", "nothing", "--seeds", "2", "--mutation", "lost_turn")
    done = attempt(tree, sys.executable, "-m", "pyrdma", *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "turns" in done.stdout + done.stderr


def test_the_systems_native_test_passes(tree: Path) -> None:
    (test,) = (block.path for block in SYSTEM if block.path.endswith("_test.cc"))
    found = [next((tree / "build").rglob(f"libpyrdma_{n}.a")) for n in ("programs", "native")]
    program = str(tree / "build/turn_test")
    compiler = os.environ.get("CXX", "c++")
    flags = ("-std=c++20", "-march=x86-64-v2", "-I", "native")
    libraries = (
        *map(str, found),
        "-lgtest",
        "-lgtest_main",
        "-lboost_context",
        "-lpthread",
        "-ldl",
    )
    run(tree, compiler, *flags, test, *libraries, "-o", program)
    assert "1 test" in run(tree, program)


def test_the_site_has_a_page_of_the_system(tree: Path) -> None:
    words = ("--conf-dir", "docs", "--builder", "html", "--fail-on-warning", "--quiet")
    run(tree, sys.executable, "-m", "sphinx", *words, ".", "build/site")
    assert "Nodes that take turns" in (tree / "build/site/docs/api/nothing.html").read_text()
    assert (tree / "build/site/native/systems/nothing/README.html").exists()


def test_the_channel_works(tree: Path) -> None:
    (tree / "build/flag.py").write_text(SCRIPT.text, encoding="utf-8")
    run(tree, sys.executable, "build/flag.py")
