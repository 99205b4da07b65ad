"""The interface of a peer, and helpers that run its programs safely.

A *peer* is another project's software that does the same job as a part of pyrdma. Each peer is one
file in ``experiments/peers``, a module that satisfies `Peer`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyrdma.errors import Error, InvalidArgument, nearest
from pyrdma.trust import distrusted


class PeerError(Error):
    """A peer is installed but failed, or its output was not as expected."""


@dataclass(frozen=True)
class Availability:
    """Whether a peer can run on this machine.

    Attributes
    ----------
    ok : bool
        Whether the peer can run.
    reason : str
        The reason why the peer cannot run; empty if it can.
    install_command : str
        The command that installs the peer.
    """

    ok: bool
    reason: str
    install_command: str


class Peer(Protocol):
    """The interface of the modules in ``experiments/peers``.

    Attributes
    ----------
    NAME : str
        The peer's name in tables.
    MEASUREMENTS : mapping of str to str
        The measurements of `run`, each with its unit: ``s``, ``op/s``.
    """

    NAME: str
    MEASUREMENTS: Mapping[str, str]

    def available(self) -> Availability:
        """Return whether the peer can run here. Cheap: it runs no program of the peer."""
        ...

    def run(
        self, measurements: Sequence[str] | None = None, seconds: float = 0.5
    ) -> dict[str, float]:
        """Take the named measurements, or all, each for about `seconds`.

        Raises
        ------
        PeerError
            The peer failed; the message has its command and the end of its output.
        """
        ...


def missing_tools(tools: Sequence[str], install_command: str) -> Availability:
    """Return whether all `tools` are on ``PATH``."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        return Availability(False, f"not on PATH: {', '.join(missing)}", install_command)
    return Availability(True, "", install_command)


def has_header(name: str) -> bool:
    """Return whether the C++ compiler finds a header."""
    probe = f"#if !__has_include(<{name}>)\n#error missing\n#endif\n"
    command = ["g++", "-std=c++17", "-x", "c++", "-E", "-o", "/dev/null", "-"]
    found = subprocess.run(command, input=probe, text=True, capture_output=True, check=False)
    return found.returncode == 0


def two_cpus(install_command: str) -> Availability:
    """Return whether two spinning processes can each have a CPU of their own."""
    count = len(os.sched_getaffinity(0))
    if count < 2:
        reason = f"two processes that spin need 2 CPUs; this process may use {count}"
        return Availability(False, reason, install_command)
    return Availability(True, "", install_command)


def cpu_pair() -> tuple[int, int]:
    """Return the two CPUs to which peers and pyrdma's processes are pinned."""
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return first, second


# Both scripts read a pipe that ends with this process, however this process ends.
_KILLS_GROUP = """
exec 3<&0 </dev/null
"$@" 3<&- &
child=$!
{ read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &
watcher=$!
wait "$child"
status=$?
kill -KILL "$watcher"
exit "$status"
"""
# Processes that are about to be killed may still write into the folder.
_REMOVES = 'read -r _; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1"; sleep 0.1; done'


@contextlib.contextmanager
def _pipe_until_our_end() -> Iterator[int]:
    """Yield the reading end of a pipe that only this process can write to."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


@contextlib.contextmanager
def shared_memory_folder() -> Iterator[Path]:
    """Yield a private folder on ``/dev/shm``; remove it afterwards with a peer's files in it.

    A process of its own removes it if this process is killed.
    """
    prefix = f"pyrdma-peer-{os.getpid()}-"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/dev/shm"))
    with _pipe_until_our_end() as pipe:
        command = ["sh", "-c", _REMOVES, "sh", str(folder)]
        remover = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            remover.kill()
            remover.wait()


def _kill_group(process: subprocess.Popen[str]) -> None:
    # The group outlives its leader when the leader is a launcher such as mpirun or timeout.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextlib.contextmanager
def started(
    command: Sequence[str], env: Mapping[str, str] | None = None, limit_s: float = 60
) -> Iterator[subprocess.Popen[str]]:
    """Run `command` in a process group of its own; kill the whole group on leaving.

    The group ends too if this process is killed. ``timeout`` of the coreutils bounds its time.
    """
    with _pipe_until_our_end() as pipe:
        process = subprocess.Popen(
            ["timeout", "--kill-after=1", f"{limit_s:g}", "sh", "-c", _KILLS_GROUP, "sh", *command],
            stdin=pipe,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LC_ALL": "C", **(env or {})},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _kill_group(process)


def output_of(
    command: Sequence[str], env: Mapping[str, str] | None = None, limit_s: float = 60
) -> str:
    """Run `command` to its end and return its output.

    Raises
    ------
    PeerError
        The command failed, or took more than `limit_s`.
    """
    with started(command, env, limit_s) as process:
        out, err = process.communicate()
    if process.returncode != 0:
        why = f"exit status {process.returncode}"
        if process.returncode == 124:
            why = f"the command did not end within {limit_s:g} s"
        last_words = "\n".join((err.strip() or out.strip()).splitlines()[-8:])
        raise PeerError(f"`{' '.join(command)}`: {why}\n{last_words}")
    return out


def named_values(text: str, wanted: Sequence[str]) -> dict[str, float]:
    """Parse the ``NAME VALUE`` lines that the programs of ``experiments/peers`` print.

    Raises
    ------
    PeerError
        A wanted name is missing.
    """
    values: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in wanted:
            values[name] = float(value)
    missing = [name for name in wanted if name not in values]
    if missing:
        raise PeerError(f"no value for {', '.join(missing)} in the output:\n{text}")
    return {name: values[name] for name in wanted}


def chosen(measurements: Sequence[str] | None, known: Mapping[str, str]) -> list[str]:
    """Return the measurements to take, in order; all if `measurements` is None.

    Raises
    ------
    InvalidArgument
        A measurement is unknown.
    """
    names = list(known) if measurements is None else list(measurements)
    for name in names:
        if name not in known:
            raise InvalidArgument(f"unknown measurement {name!r}{nearest(name, known)}")
    return names


def cache_folder() -> Path:
    """Return the folder for programs compiled at run time, creating it for this user only."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "pyrdma" / "peers"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PeerError(
            f"cannot create {folder}: {error.strerror}; point XDG_CACHE_HOME at a writable folder"
        ) from error
    return folder


def compiled(
    source: Path,
    compiler: Sequence[str],
    libraries: Sequence[str] = (),
    generator: Sequence[str] = (),
    interface: Path | None = None,
) -> Path:
    """Return the program of `source`; compile it unless the cache has it.

    The key is a hash of the sources, the commands and their programs' versions. The compiler writes
    into a new folder, which is then renamed into place, so that two builds at once do not collide.

    Parameters
    ----------
    source
        The program's source.
    compiler
        Command of the compiler. ``{folder}`` in a word of it is the folder of the build.
    libraries
        Arguments behind the source.
    generator
        Command that writes sources into ``{folder}`` before. Its last argument is `interface`.
    interface
        File from which `generator` makes the sources.

    Raises
    ------
    PeerError
        A command failed; the message is the command's.
    """
    text = source.read_bytes() + b"\0" + (interface.read_bytes() if interface else b"")
    versions = [
        output_of([command[0], "--version"]) for command in (compiler, generator) if command
    ]
    recipe = "\0".join([*versions, *generator, *compiler, *libraries]).encode()
    key = hashlib.sha256(text + b"\0" + recipe).hexdigest()[:32]
    cache = cache_folder()
    program = cache / f"{source.stem}-{key}" / source.stem
    if program.is_file() and not distrusted(program.parent):
        return program
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
    try:
        built = building / source.stem

        def build(*command: str) -> None:
            words = [word.replace("{folder}", str(building)) for word in command]
            output_of(words, limit_s=300)

        if generator:
            build(*generator, str(interface))
        build(*compiler, str(source), "-o", str(built), *libraries)
        # The rename fails if another process was faster; that process's program is as good.
        with contextlib.suppress(FileExistsError, OSError):
            building.rename(program.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if not program.is_file():
        raise PeerError(f"cannot put {program} in place; remove {program.parent} and run again")
    return program
