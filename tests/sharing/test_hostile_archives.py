"""No archive leads outside of its folder, fills memory or disk, or is taken when it is damaged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import pyrdma as rd
from pyrdma.sharing import crate
from tests.errors import raises
from tests.sharing.rewrite import contents, rewritten

FILES = {"README.md": b"text\n" * 100, "results/a/b/sim/run.json": b"{}"}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    crate.pack(folder, tmp_path / "good.zip", {"name": "n"}, [])
    return tmp_path / "good.zip"


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    yield
    assert list(temporary.iterdir()) == []


def unpack(path: Path) -> dict[str, bytes]:
    with crate.unpacked(path) as (_, folder):
        found = {p for p in folder.rglob("*") if p.is_file()}
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def with_member(good: Path, member: zipfile.ZipInfo, content: bytes = b"x") -> Path:
    """Add a member, which the metadata list with a fitting digest."""
    path = rewritten(good, good.with_name("bad.zip"), {"placeholder": content})
    files = contents(path)
    del files["placeholder"]
    document = json.loads(files.pop(crate.METADATA))
    for entity in document["@graph"]:
        if entity["@id"] == "placeholder":
            entity["@id"] = member.filename
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(crate.METADATA, json.dumps(document))
        for name, old in files.items():
            archive.writestr(name, old)
        archive.writestr(member, content)
    return path


def test_a_good_archive_is_unpacked(good: Path) -> None:
    found = unpack(good)
    assert found.pop(crate.METADATA)
    assert found == FILES
    assert crate.is_archive(good)
    member = zipfile.ZipInfo("a folder/b, c=1.txt")
    assert "a folder/b, c=1.txt" in unpack(with_member(good, member))


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "a/../../outside",
        "/outside",
        "//outside",
        "a//b",
        "a/./b",
        "./a",
        "C:/outside",
        "a\\..\\outside",
        "line\nbreak",
        "escape\x1b[2J",
        "folder/",
        "README.md/inside",
        "n" * 241,
    ],
)
def test_a_wrong_name(good: Path, tmp_path: Path, name: str) -> None:
    path = with_member(good, zipfile.ZipInfo(name))
    before = sorted(tmp_path.rglob("*"))
    with raises(rd.Error, path):
        unpack(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_with_a_zero_byte(good: Path) -> None:
    path = with_member(good, zipfile.ZipInfo("README.mdX.."))
    path.write_bytes(path.read_bytes().replace(b"README.mdX..", b"README.md\0.."))
    with raises(rd.Error, path):
        unpack(path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR])
def test_another_kind_than_a_file(good: Path, kind: int) -> None:
    member = zipfile.ZipInfo("link")
    member.external_attr = (kind | 0o777) << 16
    with raises(rd.Error, "link"):
        unpack(with_member(good, member, b"/etc/passwd"))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_compression(good: Path, method: int) -> None:
    member = zipfile.ZipInfo("other")
    member.compress_type = method
    with raises(rd.Error, "other", method):
        unpack(with_member(good, member))


def patched(path: Path, name: bytes, at: int, form: str, value: int) -> Path:
    """Change a field of a member in the directory, at an offset from the entry's begin."""
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\1\2", 0, data.rindex(name))
    struct.pack_into(form, data, entry + at, value)
    path.write_bytes(data)
    return path


def test_an_encrypted_file(good: Path) -> None:
    with raises(rd.Error, "README.md"):
        unpack(patched(good, b"README.md", 8, "<H", 1))


def test_a_file_that_says_to_be_too_large(good: Path) -> None:
    with raises(rd.Error, "README.md", crate.MOST_FILE, crate.MOST_FILE + 1):
        unpack(patched(good, b"README.md", 24, "<L", crate.MOST_FILE + 1))


def test_a_file_of_another_size_than_it_says(good: Path) -> None:
    with raises(rd.Error, "README.md"):
        unpack(patched(good, b"README.md", 24, "<L", 10))


def test_too_many_bytes_in_all_files(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crate, "MOST_TOTAL", 400)
    with raises(rd.Error, good, 400):
        unpack(good)


def test_more_bytes_than_the_disk_has(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=501))
    with raises(rd.Error, good, 502, 501, "TMPDIR"):
        unpack(good)


def test_files_that_overlap(good: Path) -> None:
    """Many entries of one content would unpack to more than the archive could hold."""
    with raises(rd.Error, good):
        unpack(patched(good, b"README.md", 20, "<L", good.stat().st_size))


def test_a_file_that_is_there_twice(good: Path) -> None:
    with zipfile.ZipFile(good, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("README.md", FILES["README.md"])
    with raises(rd.Error, "README.md"):
        unpack(good)


def end(directory: int) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, directory, 0, 0)


def zip64(data: bytes) -> bytes:
    """The same archive with a second end, which `zipfile` would take."""
    _, _, _, count, _, size, offset, _ = struct.unpack("<4s4H2LH", data[-22:])
    place = len(data) - 22
    counts = (45, 45, 0, 0, count, count, size, offset)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, *counts)
    return data[:-22] + record + struct.pack("<4sLQL", b"PK\6\7", 0, place, 1) + data[-22:]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda _: b"", rd.InvalidArgument),
        (lambda _: b"text", rd.InvalidArgument),
        (lambda data: b"#!/bin/sh\n" + data, rd.InvalidArgument),
        (lambda data: data[: len(data) // 2], rd.Error),
        (lambda data: data[:-1], rd.Error),
        (lambda data: data + b"x", rd.Error),
        (lambda data: data[:-22] + end(2**31), rd.Error),
        (lambda data: data[:-22] + end(10**6), rd.Error),
        (lambda data: data[:-2] + b"\1\0x", rd.Error),
        (lambda data: data[:-2] + struct.pack("<H", 22) + bytes(22), rd.Error),  # a comment
        (zip64, rd.Error),
    ],
)
def test_a_broken_end(good: Path, change: Callable[[bytes], bytes], kind: type[rd.Error]) -> None:
    good.write_bytes(change(good.read_bytes()))
    with raises(kind, good):
        unpack(good)


def test_a_directory_that_would_fill_the_memory(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crate, "_MOST_DIRECTORY", 99)
    with raises(rd.Error, good, 99):
        unpack(good)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "nowhere", "."):
        assert not crate.is_archive(tmp_path / name)
        with raises(rd.InvalidArgument, tmp_path / name):
            unpack(tmp_path / name)


def test_a_zip_of_something_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "b")
    with raises(rd.InvalidArgument, tmp_path / "a.zip", crate.METADATA):
        unpack(tmp_path / "a.zip")


def test_a_file_that_the_metadata_do_not_list(good: Path) -> None:
    with zipfile.ZipFile(good, "a") as archive:
        archive.writestr("added", "x")
    with raises(rd.Error, "added"):
        unpack(good)


def with_metadata(good: Path, content: bytes) -> Path:
    files = {**contents(good), crate.METADATA: content}
    with zipfile.ZipFile(good, "w") as archive:
        for name, old in files.items():
            archive.writestr(name, old)
    return good


DIGEST = hashlib.sha256(FILES["README.md"]).hexdigest()
FILE = {"@id": "README.md", "@type": "File", "contentSize": "500", "sha256": DIGEST}


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [{**FILE, "contentSize": "501"}],
        [{**FILE, "contentSize": "-500"}],
        [{**FILE, "contentSize": "9" * 9000}],
        [{**FILE, "contentSize": [500]}],
        [{**FILE, "sha256": "0" * 64}],
        [{**FILE, "sha256": None}],
        [FILE, FILE],
        [{**FILE, "@id": ["README.md"]}],
        ["text"],
        [{**FILE, "@id": "elsewhere"}, FILE],
    ],
)
def test_wrong_metadata(good: Path, parts: list[object]) -> None:
    document = json.loads(contents(good)[crate.METADATA])
    graph = [e for e in document["@graph"] if e["@id"] != "README.md"]
    document["@graph"] = [*graph, *parts]
    with raises(rd.Error, good) as caught:
        unpack(with_metadata(good, json.dumps(document).encode()))
    assert caught.type is rd.Error, "it is an archive, and damaged"


def test_a_size_beyond_the_bound(good: Path) -> None:
    text = contents(good)[crate.METADATA].replace(b'"500"', b'"268435457"')
    with raises(rd.Error, good, crate.MOST_FILE):
        unpack(with_metadata(good, text))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"@graph": 1}', b'{"@graph": []}', b"[" * 100_000, b"\xff", b"1" * 9999],
    ids=lambda value: str(value)[:20],
)
def test_metadata_of_another_form(good: Path, content: bytes) -> None:
    with raises(rd.Error, good, crate.METADATA):
        unpack(with_metadata(good, content))


def test_metadata_that_are_too_long(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crate, "_MOST_METADATA", 100)
    with raises(rd.Error, good, crate.METADATA, 100):
        unpack(good)


def test_another_content_than_the_digest_says(good: Path) -> None:
    files = {**contents(good), "README.md": b"TEXT\n" * 100}
    with zipfile.ZipFile(good, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    with raises(rd.Error, good, "README.md"):
        unpack(good)
