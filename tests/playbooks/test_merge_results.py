"""The program of collect.yml that adds an archive of a host to the results: it believes nothing."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.errors import unnamed
from tests.playbooks.conftest import PLAYBOOKS

PROGRAM = PLAYBOOKS / "roles/pyrdma/files/merge_results.py"
POINT = "fabric/latency/verbs@bed/points/0123456789abcdef0123.jsonl"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Archive:
    """An archive as a host makes it, which a test changes before it is written."""

    def __init__(self, **files: bytes) -> None:
        self.files = files or {POINT: b"measured", "fabric/latency/verbs@bed/run.json": b"{}"}
        self.listed = {name: digest(content) for name, content in self.files.items()}
        self.more: list[tarfile.TarInfo] = []

    def write(self, folder: Path) -> Path:
        path = folder / "collected.tar.gz"
        text = "".join(f"{value}  ./{name}\n" for name, value in self.listed.items()).encode()
        with tarfile.open(path, "w:gz") as archive:
            for name, content in [("digests", text), *self.files.items()]:
                member = tarfile.TarInfo(name if name == "digests" else f"files/./{name}")
                member.name = member.name.replace("/./", "/")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            for member in self.more:
                archive.addfile(member, io.BytesIO(b"x" * member.size))
        return path


def merge(archive: Archive | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    path = archive.write(folder) if isinstance(archive, Archive) else archive
    words = [sys.executable, "-I", str(PROGRAM), str(path), str(folder / "results")]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def left(folder: Path) -> list[str]:
    """Return all files of the test's folder but the archive."""
    found = [p.relative_to(folder) for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()]
    return sorted(str(path) for path in found if path.name != "collected.tar.gz")


def test_files_are_added_once(tmp_path: Path) -> None:
    assert merge(Archive(), tmp_path).stdout == "2\n"
    assert (tmp_path / "results" / POINT).read_bytes() == b"measured"
    assert merge(Archive(), tmp_path).stdout == "0\n"
    assert len(left(tmp_path)) == 2


def test_a_point_that_is_here_stays_and_a_table_is_replaced(tmp_path: Path) -> None:
    assert merge(Archive(), tmp_path).returncode == 0
    changed = Archive()
    changed.files["fabric/latency/verbs@bed/run.json"] = b'{"new": 1}'
    changed.listed["fabric/latency/verbs@bed/run.json"] = digest(b'{"new": 1}')
    assert merge(changed, tmp_path).stdout == "1\n"
    assert (tmp_path / "results/fabric/latency/verbs@bed/run.json").read_bytes() == b'{"new": 1}'
    other = Archive(**{POINT: b"other", "fabric/latency/verbs@bed/run.json": b"{}"})
    done = merge(other, tmp_path)
    assert done.returncode != 0
    assert unnamed(done.stderr, tmp_path / "results" / POINT) == []
    assert (tmp_path / "results" / POINT).read_bytes() == b"measured"
    kept = (tmp_path / "results/fabric/latency/verbs@bed/run.json").read_bytes()
    assert kept == b'{"new": 1}', "nothing is written if anything is wrong"


def link(name: str, kind: bytes, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "name",
    [
        "../outside.json",
        "/etc/outside.json",
        "a/../../outside.json",
        "a/./b.json",
        "a/.hidden.json",
        ".hidden/a.json",
        "a//b.json",
        "outside.json",
        "a/b.sh",
        "a/b\x01.json",
        "a/points",
    ],
)
def test_a_name_that_is_none_of_results_is_refused(tmp_path: Path, name: str) -> None:
    done = merge(Archive(**{name: b"evil"}), tmp_path)
    assert done.returncode != 0
    assert unnamed(done.stderr, repr(name)) == []
    assert left(tmp_path) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    archive = Archive()
    del archive.files[POINT]
    archive.more = [link(f"files/{POINT}", kind, "/etc/passwd")]
    done = merge(archive, tmp_path)
    assert done.returncode != 0
    assert unnamed(done.stderr, POINT) == []
    assert left(tmp_path) == []


def test_content_must_have_its_digest(tmp_path: Path) -> None:
    archive = Archive()
    archive.listed[POINT] = digest(b"other")
    done = merge(archive, tmp_path)
    assert done.returncode != 0
    assert unnamed(done.stderr, POINT) == []
    assert left(tmp_path) == []


def test_every_listed_file_must_be_there_and_no_other(tmp_path: Path) -> None:
    archive = Archive()
    del archive.files[POINT]
    done = merge(archive, tmp_path)
    assert (done.returncode != 0, unnamed(done.stderr, POINT)) == (True, [])
    archive = Archive()
    del archive.listed[POINT]
    done = merge(archive, tmp_path)
    assert (done.returncode != 0, unnamed(done.stderr, POINT)) == (True, [])
    twice = Archive()
    again = tarfile.TarInfo(f"files/{POINT}")
    again.size = 1
    twice.more = [again]
    done = merge(twice, tmp_path)
    assert (done.returncode != 0, unnamed(done.stderr, POINT)) == (True, [])
    assert left(tmp_path) == []


def test_a_file_over_the_bound_is_refused(tmp_path: Path) -> None:
    size = (256 << 20) + 1
    path = tmp_path / "collected.tar.gz"
    text = f"{digest(bytes(size))}  ./{POINT}\n".encode()
    with gzip.open(path, "wb", compresslevel=1) as packed:
        for name, length in (("digests", len(text)), (f"files/{POINT}", size)):
            member = tarfile.TarInfo(name)
            member.size = length
            packed.write(member.tobuf())
            packed.write(text.ljust(512, b"\0") if name == "digests" else b"")
        for _ in range(257):
            packed.write(bytes(1 << 20))
    done = merge(path, tmp_path)
    assert (done.returncode != 0, unnamed(done.stderr, POINT)) == (True, [])
    assert left(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "collected.tar.gz"
    path.write_bytes(content)
    done = merge(path, tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert left(tmp_path) == []


@pytest.mark.parametrize("at", [POINT, "fabric/latency", "fabric"])
def test_a_link_in_the_results_is_not_followed(tmp_path: Path, at: str) -> None:
    place = tmp_path / "results" / at
    place.parent.mkdir(parents=True)
    outside = tmp_path / "outside"
    if at != POINT:
        outside.mkdir()
    place.symlink_to(outside)
    done = merge(Archive(), tmp_path)
    assert (done.returncode != 0, unnamed(done.stderr, place)) == (True, [])
    assert left(tmp_path) == [f"results/{at}"]
