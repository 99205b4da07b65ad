"""An archive as a file: a ZIP that is an RO-Crate 1.2, which names each file with its SHA-256.

An archive comes from outside. `unpacked` therefore checks every name, kind, size and digest before
anything reads a file of it. It takes only what `pack` writes: no ZIP64, no comment, no links, no
folders of their own, no file that the metadata do not name.

The metadata are a few entities of JSON-LD, written here: the package `rocrate` brings an HTTP
client for entities of the web, which archives do not have.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

from pyrdma import _shapes
from pyrdma.errors import Error, InvalidArgument
from pyrdma.files import digest_of, digest_of_stream, disk_error, has_content, put_in_place
from pyrdma.scratch import scratch_file, scratch_folder

__all__ = [
    "METADATA",
    "Archive",
    "changed",
    "is_archive",
    "opened",
    "pack",
    "unpacked",
    "write_plainly",
]

METADATA = "ro-crate-metadata.json"
"""Name of the file of metadata, which RO-Crate prescribes."""

MOST_FILE = 256 << 20
"""Most bytes of a file in an archive, as of a stored point."""
MOST_TOTAL = 8 << 30
"""Most bytes of all files of an archive."""

_MOST_METADATA = 64 << 20
_MOST_DIRECTORY = 32 << 20
_MOST_NAME = 240
_CONTEXT = ["https://w3id.org/ro/crate/1.2/context", {"sha256": "https://schema.org/sha256"}]
_PROFILE = "https://w3id.org/ro/crate/1.2"
_END = struct.Struct("<4s4H2LH")  # the end of a ZIP's directory, without a comment
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(ValueError, struct.error, IndexError, OverflowError, OSError),
)
"""Errors of `zipfile` for a broken file."""


@dataclass(frozen=True)
class Archive:
    """An open archive: the digest of its file, and the size and digest of each file inside."""

    path: Path
    sha256: str
    files: Mapping[str, tuple[int, str]]
    zip: zipfile.ZipFile

    def unpack(self, folder: Path) -> None:
        """Write the files into an empty folder, each after its size and digest are checked.

        Raises
        ------
        Error
            A file is damaged, or the disk is full.
        """
        needed = sum(size for size, _ in self.files.values())
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise Error(
                f"{self.path} needs {needed} bytes in {folder}, where {free} are free; free some, "
                "or set TMPDIR or XDG_CACHE_HOME to a larger disk"
            )
        contents = {METADATA: _read(self.path, self.zip, METADATA, _MOST_METADATA)}
        for name in [METADATA, *self.files]:
            content = contents.get(name) or _read(self.path, self.zip, name, MOST_FILE)
            if name != METADATA and (len(content), _digest(content)) != self.files[name]:
                raise _damaged(
                    self.path, f"{name} does not have the size and digest that are listed"
                )
            write_plainly(folder / name, content)


def write_plainly(path: Path, content: bytes) -> None:
    """Write a file of a temporary folder, without the waiting for the disk of a lasting one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise disk_error(path, error) from error


def _damaged(path: Path, reason: str) -> Error:
    return Error(f"the archive {path} is damaged or was changed: {reason}; get it again")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- writing --------------------------------------------------------------------------------------


def pack(folder: Path, target: Path, root: Mapping[str, Any], others: Sequence[Any]) -> str:
    """Write all files below `folder` as an archive; return the digest of its file.

    `root` has the properties of the data set, `others` are further entities.

    Raises
    ------
    Error
        The folder has too many or too large files, or the archive cannot be written.
    """
    contents = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    parts = {name: _entity(name, path) for name, path in contents.items()}
    dataset = {"@id": "./", "@type": "Dataset", **root}
    dataset["hasPart"] = [{"@id": part["@id"]} for part in parts.values()]
    about = {"@id": METADATA, "@type": "CreativeWork", "about": {"@id": "./"}}
    graph = [{**about, "conformsTo": {"@id": _PROFILE}}, dataset, *others, *parts.values()]
    document = json.dumps({"@context": _CONTEXT, "@graph": graph}, indent=1).encode()
    try:
        with scratch_file(target) as temporary:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, allowZip64=False) as made:
                made.writestr(_member(METADATA), document)
                for name, path in contents.items():
                    member = _member(name)
                    member.file_size = path.stat().st_size  # one that does not fit is refused
                    with path.open("rb") as source, made.open(member, "w") as stream:
                        shutil.copyfileobj(source, stream, 1 << 20)
            _, digest = digest_of(temporary)
            put_in_place(temporary, target, 0o644)
    except OSError as error:
        raise disk_error(target, error) from error
    except zipfile.LargeZipFile:
        raise Error(
            f"{len(contents)} files do not fit into one archive (65535 files, 4 GiB); copy some "
            "experiments into another results folder, and archive that"
        ) from None
    return digest


def _member(name: str) -> zipfile.ZipInfo:
    """Return a member without a time, so that equal files give equal archives."""
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.external_attr = (stat.S_IFREG | 0o644) << 16
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _entity(name: str, path: Path) -> dict[str, str]:
    try:
        size, digest = digest_of(path)
    except (OSError, ValueError) as error:
        raise Error(f"{path} cannot be archived: {error}") from None
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return {
        "@id": quote(name, safe="/=,@+"),
        "@type": "File",
        "encodingFormat": kind,
        "contentSize": str(size),
        "sha256": digest,
    }


# --- reading --------------------------------------------------------------------------------------


def is_archive(path: Path) -> bool:
    """Return whether a path is a file that begins as a ZIP does."""
    try:
        with _open(path) as stream:
            return stream.read(4) == b"PK\3\4"
    except (OSError, Error):
        return False


def _open(path: Path) -> IO[bytes]:
    # O_NONBLOCK: the opening of a pipe that nobody writes to would never end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    stream = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        stream.close()
        raise InvalidArgument(f"{path} is no file; give an archive that 'pyrdma archive' made")
    return stream


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Open an archive after a check of its directory and its metadata; no file is unpacked.

    Raises
    ------
    InvalidArgument
        There is no such file, or it is no archive of pyrdma.
    Error
        It is damaged, or a bound is exceeded; the text names the file inside and the bound.
    """
    try:
        stream = _open(path)
    except OSError as error:
        raise InvalidArgument(f"the archive {path} cannot be read: {error.strerror}") from None
    with stream:
        _check_end(path, stream)
        stream.seek(0)
        size, sha256 = digest_of_stream(stream)
        try:
            archive = zipfile.ZipFile(stream)
        except _BROKEN as error:
            raise _damaged(path, f"its directory cannot be read ({error})") from None
        with archive:
            members = _members(path, archive, size)
            files = _listed(path, archive)
            for names, problem in (
                (members.keys() - files.keys() - {METADATA}, "its metadata do not list"),
                (files.keys() - members.keys(), "it does not hold"),
            ):
                if names:
                    raise _damaged(path, f"{problem} {min(names)}")
            yield Archive(path, sha256, files, archive)


def _check_end(path: Path, stream: IO[bytes]) -> None:
    """Refuse other files than ZIPs, and a directory that would fill the memory."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _END.size - 20))
    tail = stream.read()
    stream.seek(0)
    if stream.read(4) != b"PK\3\4":
        raise InvalidArgument(f"{path} is no archive; give one that 'pyrdma archive' made")
    signature, _, _, _, _, directory, _, _ = _END.unpack(tail[-_END.size :].rjust(22, b"\0"))
    if signature != b"PK\5\6":
        raise _damaged(path, "it does not end with the directory of a ZIP without a comment")
    # The bound on the directory must be of the end that `zipfile` takes, which is another here.
    if tail[:4] == b"PK\6\7":
        raise _damaged(path, "it is a ZIP64; 'pyrdma archive' writes none")
    if directory > _MOST_DIRECTORY:
        raise _damaged(path, f"its directory has {directory} bytes; at most {_MOST_DIRECTORY}")


def _members(path: Path, archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name, each checked."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename
        reason = _wrong_name(name) or _wrong_member(member)
        if name in found:
            reason = "is there twice"
        if reason:
            raise _damaged(path, f"{name[:_MOST_NAME]!r} {reason}")
        found[name] = member
    folders = {parent.as_posix() for name in found for parent in Path(name).parents}
    if both := folders & found.keys():
        raise _damaged(path, f"{min(both)!r} is a file and a folder")
    total = sum(member.file_size for member in found.values())
    if total > MOST_TOTAL:
        raise _damaged(path, f"its files have {total} bytes; at most {MOST_TOTAL} are taken")
    if sum(member.compress_size for member in found.values()) > size:
        raise _damaged(path, "its files overlap")
    return found


def _wrong_name(name: str) -> str:
    if not 0 < len(name) <= _MOST_NAME:
        return f"has a name of {len(name)} characters; 1 to {_MOST_NAME} are taken"
    if not name.isprintable() or "\\" in name or ":" in name:
        return "has a name with control characters, a backslash or a colon"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "has a name that does not lead to a file below the folder"
    return ""


def _wrong_member(member: zipfile.ZipInfo) -> str:
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        return "is a link, a folder or a device"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is compressed by method {member.compress_type}; 0 and 8 are taken"
    if member.file_size > MOST_FILE:
        return f"has {member.file_size} bytes; at most {MOST_FILE} are taken"
    return ""


def _read(path: Path, archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return a file of at most `most` bytes; `zipfile` checks its length and its CRC."""
    try:
        with archive.open(name) as stream:
            content = stream.read(most + 1)
    except KeyError:
        raise InvalidArgument(
            f"{path} is a ZIP without {name}; give an archive that 'pyrdma archive' made"
        ) from None
    except _BROKEN as error:
        raise _damaged(path, f"{name} cannot be read ({error})") from None
    if len(content) > most:
        raise _damaged(path, f"{name} has more than {most} bytes")
    return content


def _listed(path: Path, archive: zipfile.ZipFile) -> dict[str, tuple[int, str]]:
    """Return size and digest of each file that the metadata list."""
    content = _read(path, archive, METADATA, _MOST_METADATA)
    try:
        document = json.loads(content, parse_int=_shapes.small_integer_text)
        graph = document["@graph"]
        about = [e for e in graph if e.get("@id") == METADATA]
        if [e["conformsTo"]["@id"] for e in about] != [_PROFILE]:
            raise ValueError(f"they do not conform to {_PROFILE}")
        found = {}
        for entity in graph:
            if entity.get("@type") != "File":
                continue
            name = unquote(entity["@id"])
            size = int(entity["contentSize"])
            if not 0 <= size <= MOST_FILE:
                raise ValueError(f"{name!r} has a size that is not between 0 and {MOST_FILE}")
            if name in found:
                raise ValueError(f"{name!r} is listed twice")
            found[name] = size, entity["sha256"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"{METADATA}: {type(error).__name__}: {error}") from None
    return found


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[Archive, Path]]:
    """Unpack an archive into a temporary folder; see `opened` for the errors."""
    with opened(path) as archive, scratch_folder() as folder:
        archive.unpack(folder)
        yield archive, folder


def changed(archive: Archive, folder: Path) -> list[str]:
    """Return the files of an unpacked archive that are not as the archive has them, sorted."""
    there = {
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if p.is_symlink() or not p.is_dir()
    }
    metadata = _read(archive.path, archive.zip, METADATA, _MOST_METADATA)
    wanted = {**archive.files, METADATA: (len(metadata), _digest(metadata))}
    both = there & wanted.keys()
    differ = {name for name in both if not has_content(folder / name, *wanted[name])}
    return sorted(differ | (there ^ wanted.keys()))
