"""Commands that are killed leave no temporary file, or one that the next command removes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyrdma.scratch import scratch_file, scratch_folder
from tests.harness.support import COMMAND, environment, pyrdma
from tests.stored.tree import Tree, tree

__all__ = ["tree"]  # a fixture

WAITS = """    if "FAKE_WAITS" in os.environ:
        import signal

        open(os.environ["FAKE_WAITS"], "w").close()
        signal.pause()
    figure, ax"""


@pytest.fixture
def temporary(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files of all commands, on a tree that has results."""
    tree.run()
    tree.edit("    figure, ax", WAITS)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    os.mkfifo(tmp_path / "drawing")
    return folder


@contextmanager
def drawing(tree: Tree, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that has begun to draw, and goes on for ever."""
    pipe = tree.folder / "drawing"
    with subprocess.Popen(
        [*COMMAND, *words],
        cwd=tree.folder,
        env=environment(FAKE_WAITS=str(pipe)),
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            pipe.read_bytes()  # until the process has opened and closed it
            yield process
        finally:
            process.kill()


ARCHIVE = ("archive", "results", "--out", "a.zip")


def test_sigterm_leaves_nothing(tree: Tree, temporary: Path) -> None:
    assert pyrdma(*ARCHIVE, cwd=tree.folder).returncode == 0
    for words in (("archive", "results", "--out", "b.zip"), ("verify", "a.zip")):
        before = set(tree.folder.iterdir())
        with drawing(tree, *words) as process:
            assert list(temporary.iterdir()), "the command has no temporary folder at all"
            process.terminate()
            assert process.wait(60) in (128 + signal.SIGTERM, -signal.SIGTERM)
        assert list(temporary.iterdir()) == []
        assert set(tree.folder.iterdir()) == before


def test_what_a_killed_command_has_left_goes_with_the_next(tree: Tree, temporary: Path) -> None:
    with drawing(tree, *ARCHIVE) as living:
        [alive] = temporary.iterdir()
        with drawing(tree, "archive", "results", "--out", "b.zip") as process:
            process.kill()
        [dead] = set(temporary.iterdir()) - {alive}
        assert dead.is_dir()
        assert pyrdma(*ARCHIVE, cwd=tree.folder).returncode == 0
        assert list(temporary.iterdir()) == [alive], "another living command keeps its own"
        living.kill()
    assert pyrdma("verify", "a.zip", cwd=tree.folder).returncode == 0
    assert list(temporary.iterdir()) == []
    assert {path.name for path in tree.folder.glob("*.zip*")} == {"a.zip"}


def test_a_file_that_nobody_holds_goes(tmp_path: Path) -> None:
    target = tmp_path / "a.zip"
    with scratch_file(target) as first, scratch_file(target) as second:
        assert first.exists()
        assert second.exists()
        dead = first.with_name(f"{first.name}x")
        dead.write_bytes(b"half")
        (tmp_path / "a.zip.mine").touch()
        with dead.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            with scratch_file(target):
                assert dead.exists()
        with scratch_file(tmp_path / "b.zip"):
            assert not dead.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip.mine"]


def test_other_handlers_of_sigterm_stay() -> None:
    def handler(*_: object) -> None:
        pass

    usual = signal.signal(signal.SIGTERM, handler)
    try:
        with scratch_folder():
            assert signal.getsignal(signal.SIGTERM) is handler
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with scratch_folder(), scratch_folder():
            assert signal.getsignal(signal.SIGTERM) not in (handler, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, usual)
