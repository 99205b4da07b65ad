"""Nothing of another user runs only because it lies at or above the working folder."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrdma import provenance, registry, trust
from pyrdma.bench import ours
from tests.errors import unnamed
from tests.harness.support import FAKE, environment, pyrdma
from tests.security.other_user import OTHER, common_folder, give, needs_other_user

PLANTED = """
from pathlib import Path
from pyrdma import Experiment
Path({mark!r}).touch()
experiment = Experiment(id="planted/x", title="planted", profile="cx5", measure=None)
"""


@pytest.fixture
def common() -> Iterator[Path]:
    with common_folder() as folder:
        yield folder


def plant(folder: Path, mark: Path) -> Path:
    """Make a tree of experiments whose code creates the file `mark`."""
    tree = folder / "experiments"
    (tree / "planted").mkdir(parents=True)
    (tree / "claims").mkdir()
    (tree / "planted/x.py").write_text(PLANTED.format(mark=str(mark)))
    return tree


def listed(cwd: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    done = pyrdma(*options, "list", cwd=cwd, **variables)
    assert done.returncode == 0, done.stderr
    return done


@needs_other_user
def test_experiments_of_another_user_are_passed_over(common: Path) -> None:
    mark = common / "it-ran"
    tree = give(plant(common, mark))
    (common / "work").mkdir()
    done = listed(common / "work")
    assert not mark.exists()
    assert "planted/x" not in done.stdout
    assert "spindle/fig1" in done.stdout  # the package's own
    assert unnamed(done.stderr, tree, OTHER, "--experiments", registry.VARIABLE) == []


@needs_other_user
@pytest.mark.parametrize("how", ["option", "variable", "parent"])
def test_experiments_that_the_user_names_run(common: Path, how: str) -> None:
    mark = common / "it-ran"
    tree = give(plant(common, mark))
    if how == "option":
        done = listed(common, "--experiments", str(tree))
    else:
        named = tree if how == "variable" else common
        done = listed(common, **{registry.VARIABLE: str(named)})
    assert mark.exists()
    assert "planted/x" in done.stdout
    assert done.stderr == ""


def test_ones_own_experiments_run(tmp_path: Path) -> None:
    plant(tmp_path, tmp_path / "it-ran")
    (tmp_path / "below").mkdir()
    assert "planted/x" in listed(tmp_path / "below").stdout


def part_of_another(tree: Path) -> None:
    give(tree / "planted/x.py")


def folder_for_all(tree: Path) -> None:
    (tree / "planted").chmod(0o777)


def file_for_all(tree: Path) -> None:
    (tree / "planted/x.py").chmod(0o666)


def linked_file(tree: Path) -> None:
    target = give((tree / "planted/x.py").rename(tree.parent / "target.py"))
    (tree / "planted/x.py").symlink_to(target)


def linked_folder(tree: Path) -> None:
    target = give((tree / "planted").rename(tree.parent / "target"))
    (tree / "planted").symlink_to(target)
    (tree / "claims/loop").symlink_to(tree)


def linked_tree(tree: Path) -> None:
    target = give(tree.rename(tree.parent / "target"))
    tree.symlink_to(target)


def compiled_file(tree: Path) -> None:
    (tree / "planted/__pycache__").mkdir()
    give(tree / "planted/__pycache__")


def closed_tree(tree: Path) -> None:
    give(tree)
    tree.chmod(0)


def helper_below(tree: Path) -> None:
    (tree / "planted/deep").mkdir()
    (tree / "planted/deep/helper.py").touch()
    give(tree / "planted/deep/helper.py")


@needs_other_user
@pytest.mark.parametrize(
    "change",
    [
        part_of_another,
        folder_for_all,
        file_for_all,
        linked_file,
        linked_folder,
        linked_tree,
        compiled_file,
        closed_tree,
        helper_below,
    ],
)
def test_a_tree_that_another_user_may_have_changed_is_passed_over(
    common: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = plant(common, common / "it-ran")
    monkeypatch.chdir(common)
    find = registry.root.__wrapped__
    assert find() == tree
    change(tree)
    assert find() != tree
    assert find() == registry.root()


def test_a_name_that_is_no_tree_is_refused(tmp_path: Path) -> None:
    done = pyrdma("--experiments", str(tmp_path), "list")
    assert done.returncode == 2
    assert unnamed(done.stderr, tmp_path) == []


@needs_other_user
def test_the_user_behind_sudo_is_trusted(common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = give(plant(common, common / "it-ran"))
    assert unnamed(trust.distrusted_below(tree), OTHER) == []
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    assert trust.distrusted_below(tree) == ""


@needs_other_user
def test_a_named_file_runs_its_own_source(common: Path) -> None:
    mark = common / "it-ran"
    file = common / "mine.py"
    shutil.copy(FAKE, file)
    other = common / "other.py"
    other.write_text(PLANTED.format(mark=str(mark)))
    (common / "__pycache__").mkdir()
    cached = common / "__pycache__" / f"mine.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(
        str(other), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    give(common / "__pycache__")
    assert registry.load(str(file)).id != "planted/x"
    assert not mark.exists()


@needs_other_user
def test_helpers_of_a_named_file_come_from_the_trusted_tree(common: Path) -> None:
    mark = common / "it-ran"
    tree = plant(common, mark)
    (tree / "planted/_helper.py").write_text((tree / "planted/x.py").read_text())
    (tree / "planted/y.py").write_text("from experiments.planted._helper import experiment\n")
    give(tree)
    done = pyrdma("run", "experiments/planted/y.py", cwd=common)
    assert done.returncode == 1
    assert unnamed(done.stderr, "experiments.planted", "--experiments") == []
    assert not mark.exists()


@needs_other_user
def test_settings_of_matplotlib_of_another_user_are_refused(common: Path) -> None:
    (common / "matplotlibrc").write_text("lines.linewidth: 77\n")
    code = "from pyrdma import figures; figures.new()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=common, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    give(common / "matplotlibrc")
    done = subprocess.run(command, cwd=common, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert unnamed(done.stderr.splitlines()[-1], "matplotlibrc", OTHER) == []


def test_git_runs_no_program_that_a_repository_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    mark = tmp_path / "it-ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    tree = tmp_path / "tree"
    tree.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tree)]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run([*git, *words], check=True)
    (tree / "file").touch()
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "config", "core.fsmonitor", str(program)], check=True)
    (tree / ".git/hooks").mkdir(exist_ok=True)
    os.link(program, tree / ".git/hooks/post-index-change")
    (tree / "pyrdma").mkdir()
    monkeypatch.setattr(provenance, "__file__", str(tree / "pyrdma/provenance.py"))
    found = provenance._git.__wrapped__()
    assert found is not None
    assert not found["clean"]
    assert not mark.exists()
    if os.geteuid() == 0:
        give(tree / ".git")
        assert provenance._git.__wrapped__() is None


def test_a_benchmark_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('planted')\n")
    monkeypatch.chdir(tmp_path)
    assert ours._printed_number("import json; print(json.loads('7'))") == 7
