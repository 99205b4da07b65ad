"""Results of a host, as `rd.fetch` copies them: what is new, whole, and nothing from elsewhere."""

from __future__ import annotations

import base64
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import files
from pyrdma.errors import Error, InvalidArgument, Timeout
from pyrdma.hosts import stored
from pyrdma.hosts.host import Host
from pyrdma.hosts.inventory import HostEntry
from pyrdma.sharing import fetching
from tests.errors import raises

POINT = "fabric/latency/verbs@x/points/0123456789abcdef0123.jsonl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stored, "FOLDER", tmp_path / "there")
    return tmp_path / "there"


def write(folder: Path, name: str, content: bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


class Answers(Host):
    """A host that answers from this process, with some answers replaced."""

    def __init__(self, **replaced: Any) -> None:
        super().__init__(HostEntry("node-0"))
        self.replaced, self.asked = replaced, [""]
        self.asked.clear()

    def call(self, name: str, **arguments: Any) -> Any:
        self.asked.append(name)
        if isinstance(found := self.replaced.get(name), Exception):
            raise found
        if found is not None:
            return found
        if name == "list_results":
            return stored.listed(**arguments)
        return stored.piece(arguments["file"], arguments["offset"])


def test_what_is_new_is_copied(folder: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    long = bytes(range(256)) * (stored.PIECE // 100)
    write(folder, POINT, b"point")
    write(folder, "fabric/latency/verbs@x/results.parquet", long)
    write(folder, "fabric/latency/verbs@x/points/.hidden.jsonl", b"no")
    write(folder, "fabric/latency/verbs@x/lock", b"no")
    host = Answers()
    assert fetching._copy(host, here) == 2
    assert (here / POINT).read_bytes() == b"point"
    assert (here / "fabric/latency/verbs@x/results.parquet").read_bytes() == long
    assert len([p for p in here.rglob("*") if p.is_file()]) == 2
    host.asked.clear()
    assert fetching._copy(host, here) == 2
    assert "read_result" not in host.asked, "nothing is new"
    write(folder, POINT, b"other")
    assert fetching._copy(host, here) == 2
    assert (here / POINT).read_bytes() == b"other"


def test_a_folder_of_many_files_is_synced_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write(folder, f"a/b/{number}.json", b"{}")
    synced: list[Path] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    assert fetching._copy(Answers(), tmp_path / "here") == 5
    assert synced.count(tmp_path / "here/a/b") == 1
    assert synced[-1] == tmp_path / "here/a/b"


def test_a_long_list_comes_in_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write(folder, f"a/b/{number}.json", b"{}")
    monkeypatch.setattr(stored, "_MOST_FILES", 2)
    names = []
    after = ""
    while files := stored.listed(after)["files"]:
        names += [name for name, _, _ in files]
        after = names[-1]
    assert names == [f"a/b/{number}.json" for number in range(5)]


def test_a_list_ends_in_time_and_the_next_one_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a-b/1.json", "a/1.json", "a/b.json", "a/b/1.json", "a0/1.json", "b/c/2.json"]
    for name in names:
        write(folder, name, name.encode())
    write(folder, "a/.slurm-x/points/1.json", b"{}")
    hashed: list[str] = []
    digest_of = files.digest_of

    def note(path: Path, most: int) -> tuple[int, str]:
        hashed.append(path.relative_to(folder).as_posix())
        return digest_of(path, most)

    monkeypatch.setattr(stored, "digest_of", note)
    monkeypatch.setattr(stored, "_LIST_S", -1.0)  # each list is late after its first file
    host = Answers()
    assert fetching._copy(host, tmp_path / "here") == len(names)
    assert host.asked.count("list_results") == len(names) + 1
    assert hashed == sorted(names)
    assert (tmp_path / "here/a/b/1.json").read_bytes() == b"a/b/1.json"


def test_a_list_of_long_names_fits_a_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        write(folder, f"a/{number}{'x' * 100}.json", b"{}")
    monkeypatch.setattr(stored, "_MOST_NAMES", 200)
    assert len(stored.listed("")["files"]) == 2


def test_a_file_that_goes_and_a_link_cost_no_other(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1.json", "a/2.json"):
        write(folder, name, b"{}")
    (folder / "a/link.json").symlink_to(tmp_path)
    checked = stored._checked

    def late(name: str) -> Path:
        (folder / "a/1.json").unlink(missing_ok=True)
        return checked(name)

    monkeypatch.setattr(stored, "_checked", late)
    assert [name for name, *_ in stored.listed("")["files"]] == ["a/2.json"]


def test_a_large_file_is_never_in_memory_as_a_whole(folder: Path, tmp_path: Path) -> None:
    write(folder, POINT, bytes(24 << 20))
    host = Answers()
    for _ in range(2):  # it is read, and then found to be there
        tracemalloc.start()
        try:
            assert fetching._copy(host, tmp_path / "here") == 1
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
    assert (tmp_path / "here" / POINT).stat().st_size == 24 << 20


@pytest.mark.parametrize(
    "name", ["../x.json", "a/../../x.json", "/etc/x.json", "a/.b/x.json", "a/x"]
)
def test_a_daemon_reads_results_alone(folder: Path, name: str) -> None:
    write(folder, "a/x.json", b"{}")
    with raises(InvalidArgument, name):
        stored.piece(name, 0)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, "secret.json", b"secret")
    (folder / "a").mkdir(parents=True)
    (folder / "a/x.json").symlink_to(tmp_path / "secret.json")
    with raises(InvalidArgument, "a/x.json"):
        stored.piece("a/x.json", 0)


@pytest.mark.parametrize("name", ["../x.json", "/etc/x.json", "a/.b/x.json"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    host = Answers(list_results={"files": [[name, 1, "0" * 64]]})
    with raises(Error, "node-0", name):
        fetching._copy(host, tmp_path / "here")


@pytest.mark.parametrize("piece", [b"", b"other", b"points and more"])
def test_content_without_its_digest_is_refused(folder: Path, tmp_path: Path, piece: bytes) -> None:
    write(folder, POINT, b"point")
    host = Answers(read_result=base64.b64encode(piece).decode())
    with raises(Error, POINT, "node-0"):
        fetching._copy(host, tmp_path / "here")
    assert not (tmp_path / "here" / POINT).exists()


def test_a_host_that_falls_silent_is_named(folder: Path, tmp_path: Path) -> None:
    write(folder, POINT, b"point")
    host = Answers(read_result=Timeout("host node-0 has not answered"))
    with raises(Timeout, "node-0"):
        fetching._copy(host, tmp_path / "here")
    assert not [path for path in (tmp_path / "here").rglob("*") if path.is_file()]


def test_a_host_without_results_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if stored.FOLDER.exists():
        pytest.skip(f"this machine has {stored.FOLDER}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "hosts.yml"
    file.write_text("all: {hosts: {here: {ansible_connection: local}}}")
    with raises(Error, "here", stored.FOLDER, "run.yml"):
        rd.fetch(file)
