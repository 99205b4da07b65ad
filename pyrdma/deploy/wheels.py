"""The wheels that a node needs: pyrdma's own, built here, and its dependencies."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from email.parser import BytesParser
from pathlib import Path
from typing import TYPE_CHECKING

from pyrdma.errors import Error, Unavailable
from pyrdma.extras import install_extra
from pyrdma.scratch import scratch_folder

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["build", "need", "own_wheel", "resolve", "tagged"]

BUILD_S = 1800.0
"""Longest time of a build, or of one resolution over a slow network."""

_ROUNDS = 5
"""Most resolutions until the wheels are complete."""

_MOST_METADATA = 1 << 20


def need(*packages: str) -> None:
    """Check that packages of the extra `deploy` are here.

    Raises
    ------
    Unavailable
        One is missing.
    """
    missing = [
        name
        for name in packages
        if importlib.util.find_spec(name) is None and shutil.which(name, path=_programs()) is None
    ]
    if "pip" in missing:
        raise Unavailable(f"pip is missing; install it with: {sys.executable} -m ensurepip")
    if missing:
        raise Unavailable(
            f"{' and '.join(missing)} are missing; install pyrdma's extra `deploy` with: "
            f"{install_extra('deploy')}"
        )


def _programs() -> str:
    """Return the path with the programs of this virtual environment."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def build(source: Path, python: Path, folder: Path) -> Path:
    """Build the wheel of a source tree for an interpreter, put it into `folder`, return its path.

    It has the provider for real NICs, and the tag of the oldest systems that it runs on. It takes
    one to two minutes on two cores.

    Raises
    ------
    Error
        The build fails, such as without a compiler, or the wheel would need other libraries.
    """
    # The Pythons share a folder, since most of the code is compiled alike for all.
    objects = source / "build/wheels"
    objects.mkdir(parents=True, exist_ok=True)
    with (
        scratch_folder() as built,
        (objects / "lock").open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        _pip(
            "build the wheel",
            *("--python", str(python), "wheel", "--no-deps", "--wheel-dir", str(built)),
            *("--config-settings", f"build-dir={objects / 'cmake'}"),
            *("--config-settings", "cmake.define.PYRDMA_VERBS=ON", str(source)),
        )
        (wheel,) = built.glob("*.whl")
        return tagged(wheel, folder)


def tagged(wheel: Path, folder: Path) -> Path:
    """Copy a wheel into `folder` with auditwheel's tag of the systems that it runs on.

    Raises
    ------
    Unavailable
        auditwheel or patchelf is missing.
    Error
        The wheel needs a library that such systems lack.
    """
    need("auditwheel", "patchelf")
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder() as temporary:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "auditwheel", "repair"),
                *("--wheel-dir", str(temporary), str(wheel)),
            ],
            env={**os.environ, "PATH": _programs()},
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        found = list(temporary.glob("*.whl"))
        if done.returncode or len(found) != 1:
            raise Error(f"auditwheel refuses {wheel.name}: {_last_lines(done.stderr)}")
        with zipfile.ZipFile(found[0]) as archive:
            grafted = [name for name in archive.namelist() if ".libs/" in name]
        if grafted:
            raise Error(f"{wheel.name} needs libraries of this system: {', '.join(grafted)}")
        return Path(shutil.move(found[0], folder / found[0].name))


def own_wheel(folder: Path, version: str) -> Path | None:
    """Return pyrdma's wheel in `folder` for a version of Python, such as 3.10; None without one.

    Raises
    ------
    Error
        There are several.
    """
    found = sorted(folder.glob(f"pyrdma-*-cp{version.replace('.', '')}-*.whl"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise Error(f"{folder} has several wheels for Python {version}: {names}; keep one")
    return found[0] if found else None


def resolve(
    wheel: Path,
    version: str,
    glibc: str,
    folder: Path,
    links: Path | None = None,
    extras: Sequence[str] = (),
) -> list[Path]:
    """Download the wheels that a node needs besides `wheel`; return all of them, `wheel` first.

    Parameters
    ----------
    wheel
        pyrdma's own wheel.
    version
        The node's version of Python, such as ``3.10``.
    glibc
        The node's version of the GNU C library, such as ``2.35``.
    folder
        An empty folder for the wheels.
    links
        A folder where pip finds wheels, besides the index; None for the index alone.
    extras
        Names of pyrdma's extras whose packages are wanted, too.

    Raises
    ------
    Error
        pip cannot download them, or their requirements contradict each other.
    """
    more: list[str] = []
    places = ["--find-links", str(links)] if links else []
    for number in range(_ROUNDS):
        here = folder / str(number)
        _pip(
            f"find the packages of a node with Python {version} and glibc {glibc}",
            *("download", "--dest", str(here), "--only-binary", ":all:", *places),
            *("--implementation", "cp", "--python-version", version),
            *("--abi", f"cp{version.replace('.', '')}", *_platforms(glibc)),
            *(f"{wheel}[{','.join(extras)}]" if extras else str(wheel), *more),
        )
        found = {_name_of(path): path for path in sorted(here.glob("*.whl"))}
        # pip evaluates the requirements of another version of Python as if they were of its own.
        needed, missing = _needed(found, version, frozenset(extras))
        if not missing:
            return [wheel, *(found[name] for name in needed if name != "pyrdma")]
        more += missing
    raise Error(f"the requirements of {wheel.name} contradict each other: {', '.join(more)}")


def _platforms(glibc: str) -> list[str]:
    newest = int(glibc.removeprefix("2."))
    names = [f"manylinux_2_{minor}_x86_64" for minor in range(newest, 4, -1)]
    names += [f"manylinux{year}_x86_64" for year in ("2014", "2010", "1")]
    return [word for name in names for word in ("--platform", name)]


def _needed(
    found: dict[str, Path], version: str, extras: frozenset[str]
) -> tuple[list[str], list[str]]:
    """Return the names that pyrdma needs, itself first, and the requirements that nothing meets."""
    from packaging.utils import canonicalize_name, parse_wheel_filename

    needed: list[str] = []
    missing: list[str] = []
    waiting: list[tuple[str, frozenset[str]]] = [("pyrdma", extras)]
    seen = set(waiting)
    while waiting:
        name, of_name = waiting.pop(0)
        if name not in needed:
            needed.append(name)
        for requirement in _requirements(found[name], version, of_name):
            other = canonicalize_name(requirement.name)
            path = found.get(other)
            if path is None or not requirement.specifier.contains(
                parse_wheel_filename(path.name)[1], prereleases=True
            ):
                requirement.marker = None
                missing.append(str(requirement))
            elif (more := (str(other), frozenset(requirement.extras))) not in seen:
                seen.add(more)
                waiting.append(more)
    return needed, missing


def _requirements(wheel: Path, version: str, extras: frozenset[str]) -> list[Requirement]:
    """Return the requirements of a wheel that apply to a version of Python."""
    from packaging.markers import default_environment
    from packaging.requirements import Requirement

    environment = {str(k): str(v) for k, v in default_environment().items()}
    environment |= {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "implementation_version": f"{version}.0",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "sys_platform": "linux",
    }
    found = []
    for text in _metadata(wheel):
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(
            marker.evaluate({**environment, "extra": extra}) for extra in {"", *extras}
        ):
            found.append(requirement)
    return found


def _metadata(wheel: Path) -> list[str]:
    """Return the requirements that the metadata of a wheel state."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
            (info,) = (archive.getinfo(n) for n in names if n.count("/") == 1)
            if info.file_size > _MOST_METADATA:
                raise ValueError(f"METADATA has {info.file_size} bytes")
            message = BytesParser().parsebytes(archive.read(info), headersonly=True)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise Error(f"{wheel.name} is no readable wheel: {error}") from error
    return [str(text) for text in message.get_all("Requires-Dist", [])]


def _name_of(wheel: Path) -> str:
    from packaging.utils import parse_wheel_filename

    return str(parse_wheel_filename(wheel.name)[0])


def _pip(what: str, *words: str) -> None:
    """Run pip; its errors end the command with its last lines."""
    try:
        with scratch_folder() as temporary:
            done = _alone(
                [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
                {**os.environ, "TMPDIR": str(temporary)},
            )
    except subprocess.TimeoutExpired:
        raise Error(f"pip did not {what} within {BUILD_S:.0f} s") from None
    if done.returncode:
        raise Error(f"pip could not {what}: {_last_lines(done.stderr)}")


def _alone(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program; an exception ends it with the compilers that it has started."""
    with subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, said = process.communicate(timeout=BUILD_S)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, said)


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-12:]) or "it printed nothing"
