"""One archive with all that a node runs: pyrdma, its dependencies, and the program ``bin/pyrdma``.

The archive is named by the digest of its content, ``DIGEST.tar.gz``. Equal wheels and Pythons give
an equal archive. It has ``bin/pyrdma``, the packages in ``lib``, and ``bundle.json``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from pyrdma._native import native
from pyrdma.errors import Error, InvalidArgument, Unavailable
from pyrdma.files import digest_of_stream, disk_error, make_folders, put_in_place, write_json
from pyrdma.scratch import scratch_file, scratch_folder
from pyrdma.sources import source_digest
from pyrdma.trust import distrusted

from . import pythons, unpack, wheels

__all__ = ["Bundle", "bundle"]

SOURCE = Path(__file__).resolve().parents[2]
"""The source tree, if the package is used from there."""

_OF_WHEEL = ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml")
_FOLDERS_OF_WHEEL = ("experiments", "native", "playbooks", "pyrdma")

_TIME = 315_532_800  # 1980, the oldest time that a zip file can have
_COMPILE_S = 600.0

# Only the bundle's folder and Python's own library are on the path: -I leaves out the user's
# folders and PYTHON* variables, -S the packages of the host.
_PROGRAM = """#!/bin/sh
# Runs pyrdma on the host's Python, with the packages of this folder alone.
real=$(readlink -f -- "$0")
command -v pythonVERSION >/dev/null || {
  echo "pyrdma: this host lacks pythonVERSION, which $real needs; install it, or use an archive" \\
    "for a Python of this host, made by: pyrdma bundle --python 3.X" >&2
  exit 127
}
exec pythonVERSION -I -S -c 'import sys
sys.argv[0] = "pyrdma"
sys.path.insert(0, sys.argv.pop(1))
from pyrdma._start import main
main()' "${real%/bin/*}/lib" "$@"
"""


@dataclass(frozen=True)
class Bundle:
    """An archive for nodes of one version of Python.

    Parameters
    ----------
    archive
        The file, ``DIGEST.tar.gz``.
    digest
        The digest of its content; the name of its folder on a host.
    python
        The version of Python that the nodes need.
    packages
        The wheels in it, with their SHA-256.
    compiled
        Whether it has Python's bytecode. Without it each start of a node compiles the modules.
    """

    archive: str
    digest: str
    python: str
    packages: dict[str, str]
    compiled: bool


def bundle(
    python: str,
    out: Path,
    folder: Path | None = None,
    glibc: str = "2.35",
    controller: bool = False,
    again: bool = False,
) -> Bundle:
    """Make the archive for nodes with a version of Python, in the folder `out`.

    The first call builds a wheel (one to two minutes) and asks the package index. A later call with
    the same sources returns the archive of the first.

    Parameters
    ----------
    python
        The nodes' version of Python, such as ``3.10``.
    out
        The folder of archives.
    folder
        A folder with pyrdma's wheel; None to build it from the source tree.
    glibc
        The oldest GNU C library of the nodes; that of Ubuntu 22.04 by default.
    controller
        Whether a node shall also run whole experiments, with tables and figures. The archive has
        115 MB then, instead of 30 MB.
    again
        Whether to ask the index again, for newer versions of the dependencies.

    Raises
    ------
    InvalidArgument
        The version is none that pyrdma supports, or `folder` has no wheel for it.
    Unavailable
        This Python is not here to build the wheel, or a tool is missing.
    Error
        A wheel cannot be built, found or unpacked.
    """
    if python not in pythons.VERSIONS:
        raise InvalidArgument(f"Python {python!r}: give one of {', '.join(pythons.VERSIONS)}")
    if not re.fullmatch(r"2\.\d{1,3}", glibc) or int(glibc[2:]) < 17:
        raise InvalidArgument(f"glibc {glibc!r}: give the version of a host, 2.17 or newer")
    wheels.need("pip", "packaging")
    interpreter = pythons.find().get(python)
    extras = ("controller",) if controller else ()
    inputs = _inputs(folder, [python, glibc, str(interpreter), *extras])
    known = out / f"inputs-{inputs}.json"
    if not again and (made := _known(known)) is not None:
        return made
    with scratch_folder() as place:
        own = wheels.own_wheel(folder, python) if folder else _built(python, interpreter, place)
        if own is None:
            raise InvalidArgument(f"{folder} has no wheel of pyrdma for Python {python}")
        (place / "wheels").mkdir()
        found = wheels.resolve(own, python, glibc, place / "wheels", folder, extras)
        made = _pack(found, python, interpreter, place / "content", out)
    write_json(known, asdict(made))
    return made


def _inputs(folder: Path | None, options: Sequence[str]) -> str:
    """Return a digest of all that a bundle is made from, but for the package index."""
    if folder is None:
        tree = _tree()
        if tree != SOURCE:  # an archive of the tree is of use only beside the same installed code
            options = [*options, source_digest()]
        files = [tree / name for name in _OF_WHEEL]
        for name in _FOLDERS_OF_WHEEL:
            files += (tree / name).rglob("*")
    else:
        files = list(folder.glob("*.whl"))
    hashes = [
        f"{path.name} {_sha256(path)}"
        for path in sorted(files)
        if path.is_file() and path.suffix != ".pyc"
    ]
    here = Path(__file__).read_text(encoding="utf-8")  # another form makes another archive
    text = "\n".join([*options, here, *hashes])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _known(file: Path) -> Bundle | None:
    """Return the bundle that a former call has made; None if it is not there, whole."""
    try:
        made = Bundle(**json.loads(file.read_text(encoding="utf-8")))
        return made if Path(made.archive).is_file() else None
    except (OSError, ValueError, TypeError):
        return None


def _built(python: str, interpreter: Path | None, folder: Path) -> Path:
    """Build pyrdma's wheel from the source tree."""
    tree = _tree()
    if interpreter is None:
        raise Unavailable(
            f"Python {python} is not here to build the wheel; install it with its headers, name it "
            f"in {pythons.VARIABLE}, or give a folder with a wheel that `sh tests/run.sh wheels` "
            "has built elsewhere: pyrdma bundle --wheels DIR"
        )
    wheel = wheels.build(tree, interpreter, folder / "built")
    if tree != SOURCE and (differ := _differing(wheel)):
        raise Error(
            f"the source tree {tree} has changed since pyrdma was installed from it: "
            f"{', '.join(differ[:5])}; install it again, so that hosts and this program agree: "
            f"{sys.executable} -m pip install {tree}"
        )
    return wheel


def _tree() -> Path:
    """Return the source tree: that of this package, or that which pip has installed it from."""
    if (SOURCE / "pyproject.toml").is_file():
        return SOURCE
    try:
        recorded = metadata.distribution("pyrdma").read_text("direct_url.json")
        url = urlsplit(json.loads(recorded or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError, TypeError):
        url = urlsplit("")
    tree = Path(unquote(url.path))
    if url.scheme == "file" and (tree / "pyproject.toml").is_file():
        if reason := distrusted(tree):
            raise Unavailable(f"the source tree is not used: {reason}")
        return tree
    raise Unavailable(
        "pyrdma is installed here without its source tree; install it from a clone (pip install "
        "'.[controller,deploy]'), or give a folder with a wheel: pyrdma bundle --wheels DIR"
    )


def _differing(wheel: Path) -> list[str]:
    """Return the files of a wheel by which hosts would have another `source_digest` than this."""
    package = Path(__file__).resolve().parents[1]
    core: Any = native()
    differ = []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        installed = {path.relative_to(package.parent).as_posix() for path in package.rglob("*.py")}
        for name in sorted(installed.union(names)):
            if name.startswith("pyrdma/_core.") and name.endswith(".so"):
                same = core.source_digest.encode() in archive.read(name)
            elif name.startswith(("pyrdma/experiments/", "pyrdma/playbooks/")):
                continue  # the digest leaves them out
            else:
                path = package.parent / name
                same = path.suffix != ".py" or (
                    name in names and path.is_file() and path.read_bytes() == archive.read(name)
                )
            if not same:
                differ.append(name)
    return differ


def _pack(
    found: list[Path], python: str, interpreter: Path | None, content: Path, out: Path
) -> Bundle:
    """Unpack the wheels, add the program, and write the archive."""
    packages = {path.name: _sha256(path) for path in found}
    try:
        (content / "bin").mkdir(parents=True)
        unpack.unpack(found, content / "lib")
        if interpreter is not None:
            _compile(interpreter, content)
        program = content / "bin/pyrdma"
        program.write_text(_PROGRAM.replace("VERSION", python), encoding="utf-8")
        program.chmod(0o755)
        about = {"python": python, "packages": packages, "compiled": interpreter is not None}
        (content / "bundle.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        digest = hashlib.sha256("\n".join(_entries(content)).encode()).hexdigest()[:16]
        archive = out / f"{digest}.tar.gz"
        make_folders(out)
        with scratch_file(archive) as made:
            with made.open("wb") as stream:
                _archive(content, stream)
            put_in_place(made, archive, 0o644)
    except OSError as error:
        raise disk_error(out, error) from error
    return Bundle(str(archive.resolve()), digest, python, packages, interpreter is not None)


def _compile(interpreter: Path, content: Path) -> None:
    """Compile the modules, so that no start of a node does; a node may not write beside them."""
    done = subprocess.run(
        [
            *(str(interpreter), "-S", "-s", "-m", "compileall", "-q", "-x", "/tests?/"),
            *("-s", str(content), "-p", "/", "--invalidation-mode", "unchecked-hash"),
            str(content / "lib"),
        ],
        # Equal files: neither the order of sets nor settings of the user may enter them.
        env={"PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0"},
        cwd=content,
        capture_output=True,
        text=True,
        timeout=_COMPILE_S,
        check=False,
    )
    if done.returncode:
        raise Error(f"{interpreter} could not compile the modules: {done.stdout[-1000:]}")


def _files(content: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each file, sorted by name."""
    found = {path.relative_to(content).as_posix(): path for path in content.rglob("*")}
    yield from ((name, found[name]) for name in sorted(found) if found[name].is_file())


def _mode(path: Path) -> int:
    return 0o755 if path.parent.name == "bin" and path.name == "pyrdma" else 0o644


def _entries(content: Path) -> Iterator[str]:
    for name, path in _files(content):
        yield f"{_mode(path):o} {name} {_sha256(path)}"


def _archive(content: Path, stream: IO[bytes]) -> None:
    """Write the archive: equal content gives equal bytes."""
    with (
        gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, path in _files(content):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = path.stat().st_size, _mode(path), _TIME
            with path.open("rb") as file:
                archive.addfile(entry, file)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return digest_of_stream(stream)[1]
