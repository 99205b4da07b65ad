"""Child processes import nothing from a folder in which another user may have put modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyrdma import children, trust
from pyrdma.trust import distrusted
from tests.errors import unnamed
from tests.harness.support import environment

NODES = """
import pyrdma as rd
with rd.Cluster.local(nodes=1, mode="process") as cluster:
    cluster.run(rd.workload.Idle(), duration_s=0.01)
print("done")
"""
EVERYTHING = (
    """
import os
from pyrdma.bench import ours
from pyrdma.workers import Workers

with Workers(1) as workers:
    assert workers.submit(os.getpid).result() != os.getpid()
ours.import_seconds()
"""
    + NODES
)

BESIDE = """
import os
import mine
from pyrdma.workers import Workers

with Workers(1) as workers:
    print(workers.submit(mine.process).result() not in (0, os.getpid()))
"""


def own(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o755)
    script = folder / "script.py"
    script.write_text(text)
    return script


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder of everybody, with a module for each name of Python's library."""
    folder = tmp_path / "planted"
    folder.mkdir()
    folder.chmod(0o1777)
    for name in sys.stdlib_module_names - set(sys.builtin_module_names):
        mark = folder / f"ran-{name}"
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\nraise SystemExit(9)")
    return folder


def python(*words: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=cwd,
        env=environment(**more),
    )


def ran(planted: Path) -> list[str]:
    return sorted(path.name for path in planted.glob("ran-*"))


def test_a_planted_module_would_run(planted: Path) -> None:
    """The other tests can fail: Python does run what is planted."""
    python("-m", "pyrdma._node", cwd=planted)
    assert ran(planted)


def test_nodes_workers_and_benchmarks_run_nothing_of_the_working_folder(
    tmp_path: Path, planted: Path
) -> None:
    done = python(own(tmp_path, EVERYTHING), cwd=planted)
    assert (done.stdout, ran(planted)) == ("done\n", []), done.stderr


def test_a_session_in_a_folder_of_everybody_starts_safe_processes(
    tmp_path: Path, planted: Path
) -> None:
    # As in a notebook, the empty entry is on the path when the nodes start.
    begin = "import sys\nimport pyrdma.cluster, pyrdma.workload\nsys.path.insert(0, '')\n"
    done = python(own(tmp_path, begin + NODES), cwd=planted)
    assert (done.stdout, ran(planted)) == ("done\n", []), done.stderr


def test_the_command_runs_nothing_of_the_working_folder(tmp_path: Path, planted: Path) -> None:
    # Python itself loads these from there before pyrdma can do anything.
    for path in planted.glob("*.py"):
        if path.stem not in ("struct", "json", "subprocess", "multiprocessing", "pickle"):
            path.unlink()
    words = ("fuzz", "fabric", "--seeds", "17", "--operations", "10", "--jobs", "2")
    done = python("-m", "pyrdma", *words, "--out", tmp_path / "out", cwd=planted)
    assert (done.returncode, ran(planted)) == (0, []), done.stderr


def test_the_modules_beside_a_script_reach_the_workers(tmp_path: Path) -> None:
    script = own(tmp_path, BESIDE)
    script.with_name("mine.py").write_text("import os\ndef process(): return os.getpid()")
    done = python(script, cwd=tmp_path)
    assert done.stdout == "True\n", done.stderr


def test_a_script_in_a_folder_of_everybody_is_refused(tmp_path: Path) -> None:
    script = own(tmp_path, NODES)
    script.parent.chmod(0o1777)
    done = python(script, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert unnamed(last, script.parent, "chmod go-w", "PYTHONPATH") == []
    trusting = python(script, cwd=tmp_path, PYTHONPATH=str(script.parent))
    assert trusting.stdout == "done\n", trusting.stderr


def test_the_launcher_imports_nothing_before_it_has_the_path(tmp_path: Path, planted: Path) -> None:
    probe = own(tmp_path, "")
    probe.with_name("probe.py").write_text(
        "import json, struct, subprocess, sys\ndef main(): print(sys.argv[1:], sys.path[0])"
    )
    path = [str(probe.parent), *(entry for entry in sys.path if "lib" in entry)]
    done = python(children._LAUNCHER, "probe", *path, cwd=planted)
    assert (done.stdout, ran(planted)) == (f"[] {probe.parent}\n", []), done.stderr


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_folder_of_everybody_is_not_safe(tmp_path: Path, mode: int) -> None:
    assert distrusted(tmp_path, group_too=True) == ""
    tmp_path.chmod(mode)
    assert "every user" in distrusted(tmp_path, group_too=True)


def test_a_folder_that_only_the_own_group_may_write_is_safe(tmp_path: Path) -> None:
    # Where each user has a group alone, new folders are often writable for it.
    tmp_path.chmod(0o775)
    alone = trust._is_own(tmp_path.stat().st_gid, os.geteuid())
    assert (distrusted(tmp_path, group_too=True) == "") == alone


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give folders away")
def test_a_folder_of_another_user_or_group_is_not_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o775)
    assert distrusted(tmp_path, group_too=True) == ""  # group root has root alone
    os.chown(tmp_path, 0, 12345)
    assert unnamed(distrusted(tmp_path, group_too=True), "group 12345") == []
    tmp_path.chmod(0o755)
    assert distrusted(tmp_path, group_too=True) == ""
    os.chown(tmp_path, 12345, 0)
    assert unnamed(distrusted(tmp_path, group_too=True), "user 12345") == []
    monkeypatch.setenv("SUDO_UID", "12345")
    assert distrusted(tmp_path, group_too=True) == ""
