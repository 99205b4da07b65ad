"""What is said to be stored survives a power failure: files before their names, and folders."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from pyrdma import files
from pyrdma.deploy import bundle
from pyrdma.errors import Error
from pyrdma.files import WrittenFolder, put_in_place, write_atomically
from pyrdma.runs import Options, execute
from pyrdma.sharing import crate
from tests.errors import raises
from tests.harness.support import FAKE


class Disk:
    """Notes what a power failure would cost: names that no sync of their folder has followed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self.volatile: set[str] = set()
        self._fsync, self._replace, self._mkdir = os.fsync, Path.replace, Path.mkdir
        patch.setattr(os, "fsync", self.fsync)
        patch.setattr(Path, "replace", lambda path, target: self.replace(path, target))
        patch.setattr(Path, "mkdir", lambda path, *a, **k: self.mkdir(path, *a, **k))

    def fsync(self, descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        self._fsync(descriptor)
        self.synced.append(path)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self.volatile = {name for name in self.volatile if str(Path(name).parent) != path}

    def replace(self, path: Path, target: Path) -> Path:
        assert str(path) in self.synced, "the file is on the disk before it has its name"
        self.volatile.add(str(target))
        return self._replace(path, target)

    def mkdir(self, path: Path, *arguments: object, **named: object) -> None:
        is_new = not path.exists()
        self._mkdir(path, *arguments, **named)  # type: ignore[arg-type]
        if is_new:
            self.volatile.add(str(path.absolute()))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_file_and_its_new_folders_are_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    write_atomically(tmp_path / "new/folders/file", b"content")
    assert disk.volatile == set()
    made = tmp_path / "made"
    made.touch()
    put_in_place(made, tmp_path / "archive", 0o644)
    assert disk.volatile == set()
    assert (tmp_path / "archive").stat().st_mode & 0o777 == 0o644


def test_archives_and_bundles_are_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    content = tmp_path / "content"
    content.mkdir()
    (content / "a.json").write_bytes(b"{}")
    disk.volatile.clear()
    crate.pack(content, tmp_path / "a.zip", {}, [])
    assert disk.volatile == set()
    out = tmp_path / "new/out"
    made = bundle._pack([], "3.11", None, tmp_path / "bundle", out)
    assert not disk.volatile & {made.archive, str(out), str(out.parent)}


def test_names_of_many_files_are_synced_together(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("pyrdma.files.time.monotonic", lambda: now)
    folder = WrittenFolder(tmp_path)
    for number in range(50):
        folder.write(f"a{number}", b"")
    assert len(disk.volatile) == 50
    now += files.SYNC_S
    folder.write("late", b"")
    assert disk.volatile == set()
    folder.write("last", b"")
    folder.sync()
    folder.sync()
    assert disk.volatile == set()
    assert disk.synced.count(str(tmp_path)) == 2


def test_a_run_ends_when_its_points_and_tables_are_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    report = execute(FAKE, Options(out=tmp_path / "out", seeds=(1,)))
    assert report.outcome.measured == 4
    assert disk.volatile == set()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_disk_that_fails_is_told_and_one_that_cannot_sync_folders_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    if number == errno.EINVAL:
        write_atomically(tmp_path / "file", b"content")
    else:
        with raises(Error, tmp_path / "file", os.strerror(number)):
            write_atomically(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
