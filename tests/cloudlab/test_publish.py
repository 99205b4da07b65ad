"""The profile's folder becomes a branch, and nothing else of the clone changes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cloudlab.portal import PROFILE
from tests.errors import unnamed

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

WHO = {
    f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, **WHO}
NAME = "cloudlab-profile"


def git(clone: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=clone, env={**os.environ, **ALONE}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def publish(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", clone / "playbooks/cloudlab/publish.sh", *words],
        cwd="/",
        env={**os.environ, **ALONE},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone with the profile's folder and another file, with something in its index."""
    clone = tmp_path / "a clone"
    shutil.copytree(PROFILE.parent, clone / "playbooks/cloudlab")
    (clone / "README.md").write_text("other\n")
    git(clone.parent, "init", "--quiet", "--initial-branch=main", clone.name)
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message=first")
    (clone / "README.md").write_text("staged\n")
    git(clone, "add", "README.md")
    (clone / "README.md").write_text("edited\n")
    return clone


def state(clone: Path) -> list[str]:
    return [git(clone, "status", "--porcelain"), git(clone, "rev-parse", "HEAD", "--abbrev-ref")]


def change(clone: Path) -> None:
    with (clone / "playbooks/cloudlab/profile.py").open("a") as file:
        file.write("# more\n")
    git(clone, "commit", "--quiet", "--message=more", "playbooks")


def test_the_branch_has_the_folder_at_its_top(clone: Path) -> None:
    before = state(clone)
    done = publish(clone)
    assert done.returncode == 0, done.stderr
    assert unnamed(done.stdout, f"git push REMOTE {NAME}") == []
    assert state(clone) == before
    files = sorted(path.name for path in PROFILE.parent.iterdir() if path.is_file())
    assert git(clone, "ls-tree", "-r", "--name-only", NAME).splitlines() == files
    assert git(clone, "show", f"{NAME}:profile.py") == PROFILE.read_text().strip()
    assert git(clone, "rev-list", "--count", NAME) == "1"


def test_the_branch_grows_by_what_changed(clone: Path) -> None:
    publish(clone)
    first = git(clone, "rev-parse", NAME)
    publish(clone)
    assert git(clone, "rev-parse", NAME) == first
    change(clone)
    publish(clone)
    assert git(clone, "rev-parse", f"{NAME}^") == first
    assert git(clone, "show", f"{NAME}:profile.py").endswith("# more")


def test_a_branch_can_be_named(clone: Path) -> None:
    done = publish(clone, "mine")
    assert unnamed(done.stdout, "git push REMOTE mine") == []
    assert git(clone, "rev-parse", "mine:profile.py")


@pytest.mark.parametrize("name", ["", "--help", "a b", "@{-1}", "a..b"])
def test_what_cannot_be_a_branch_is_refused(clone: Path, name: str) -> None:
    done = publish(clone, name)
    assert done.returncode == 1
    assert name in done.stderr
    assert git(clone, "branch", "--list") == "* main"


def test_a_branch_of_another_kind_stays(clone: Path) -> None:
    git(clone, "branch", "other")
    for name in ("main", "other"):
        done = publish(clone, name)
        assert done.returncode == 1
        assert unnamed(done.stderr, name) == []
        assert git(clone, "rev-parse", name) == git(clone, "rev-parse", "HEAD")


def test_a_branch_that_is_checked_out_stays(clone: Path) -> None:
    publish(clone)
    git(clone, "worktree", "add", "--quiet", "../other tree", NAME)
    old = git(clone, "rev-parse", NAME)
    change(clone)
    done = publish(clone)
    assert done.returncode == 1
    assert git(clone, "rev-parse", NAME) == old


@pytest.mark.parametrize("kind", ["changed", "new"])
def test_what_is_not_committed_is_not_published(clone: Path, kind: str) -> None:
    with (clone / "playbooks/cloudlab" / ("profile.py" if kind == "changed" else "new")).open("a"):
        pass
    path = clone / "playbooks/cloudlab" / ("profile.py" if kind == "changed" else "new")
    path.write_text("changed\n")
    done = publish(clone)
    assert done.returncode == 1
    assert unnamed(done.stderr, "playbooks/cloudlab/") == []
    assert git(clone, "branch", "--list") == "* main"


def test_outside_a_clone_it_says_so(tmp_path: Path) -> None:
    shutil.copytree(PROFILE.parent, tmp_path / "playbooks/cloudlab")
    done = subprocess.run(
        ["sh", tmp_path / "playbooks/cloudlab/publish.sh"],
        env={**os.environ, **ALONE, "GIT_CEILING_DIRECTORIES": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert unnamed(done.stderr, "git") == []
