"""A second, unprivileged user of this machine, for tests of attacks by other users.

Only root can act as another user. Elsewhere the tests are skipped, with a reason that says how to
run them. A test has one of two forms:

- The other user attacks. `give` makes files belong to the other user, or `run_as_other` makes them.
  The victim is the user of the tests, so `tests.harness.support.pyrdma` runs it.
- The other user is the victim, or its process attacks. `run_as_other` runs a command as that user,
  `python_as_other` a Python snippet that may import pyrdma.

Both users reach every folder that `common_folder` makes. Pytest's ``tmp_path`` is closed to others.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Done = subprocess.CompletedProcess[str]


def _free_id() -> int:
    taken = {user.pw_uid for user in pwd.getpwall()}
    return next(number for number in range(54321, 60000) if number not in taken)


OTHER = _free_id()
"""User and group of the other user. No account has this number, so no file or process does."""


def _why_not() -> str:
    if os.geteuid() != 0:
        return "needs root to act as a second user: sudo sh tests/run.sh python tests/security"
    try:
        subprocess.run(["/bin/true"], user=OTHER, group=OTHER, extra_groups=[], check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"user {OTHER} cannot be used here ({error}): run the tests outside of the container"
    return ""


WHY_NOT = _why_not()
needs_other_user = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is another user")
"""Marks a test that needs a second user."""


@contextmanager
def common_folder(mode: int = 0o1777) -> Iterator[Path]:
    """Make a folder that both users reach; by default any user may create files in it."""
    folder = Path(tempfile.mkdtemp(prefix="pyrdma-common-"))
    try:
        folder.chmod(mode)
        yield folder
    finally:
        shutil.rmtree(folder)


def give(path: Path) -> Path:
    """Make `path` and all below it belong to the other user; of a link, the link itself."""
    for entry in (path, *path.rglob("*")):
        os.chown(entry, OTHER, OTHER, follow_symlinks=False)
    return path


def run_as_other(
    command: Sequence[str | Path], cwd: Path, timeout: float = 60, **environment: str
) -> Done:
    """Run a command as the other user, with `environment` added to this process's environment."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "HOME": str(cwd), "MPLCONFIGDIR": str(cwd), **environment},
        user=OTHER,
        group=OTHER,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def python_as_other(code: str, cwd: Path, timeout: float = 60, **environment: str) -> Done:
    """Run a Python snippet in `cwd` as the other user; it can import what the tests can import."""
    return run_as_other([python_of_other(), "-c", code], cwd, timeout, **environment)


@cache
def python_of_other() -> Path:
    """Return a Python that the other user can start and that has this one's packages.

    The tests' own interpreter may lie in a folder that is closed to others.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = [*os.get_exec_path(), "/usr/local/bin", "/usr/bin"]
    for base in dict.fromkeys([Path(sys.executable).resolve(), *(Path(p) / name for p in places)]):
        if not base.is_file():
            continue
        python = _environment_of(base)
        try:
            done = run_as_other([python, "-c", "import numpy, pyrdma._core"], Path("/"))
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip(
        f"no {name} that user {OTHER} can start with pyrdma: install {name}, and open the folders "
        f"above {ROOT} to others (chmod o+x)"
    )


def _environment_of(base: Path) -> Path:
    """Make a virtual environment of `base` with the packages of this Python; return its Python."""
    folder = Path(tempfile.mkdtemp(prefix="pyrdma-python-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages.mkdir(parents=True)
    (packages / "site-packages").symlink_to(sysconfig.get_path("platlib"))
    return folder / "bin/python"
