"""Redis with three replicas, and clients that wait until all of them have each value.

The client, ``redis_wait.cc`` beside this file, sends a SET and a ``WAIT 3`` in one request over a
Unix socket: keys of 30 bytes drawn from 100,000, values of 100 bytes. WAIT blocks a connection, so
`IN_FLIGHT` connections have one operation each. ``put_rate`` is their rate, ``put_latency`` the
median of one connection alone. The replicas follow over ports of the loopback that were free. No
server has persistence. No process is pinned, since five share the CPUs.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyrdma.bench.peer import (
    Availability,
    PeerError,
    chosen,
    compiled,
    missing_tools,
    named_values,
    output_of,
    shared_memory_folder,
    started,
)

NAME = "Redis, WAIT 3"
INSTALL_COMMAND = "apt-get install redis-server redis-tools g++"
REPLICAS = 3
IN_FLIGHT = 128

_CONNECTIONS = {"put_rate": IN_FLIGHT, "put_latency": 1}
MEASUREMENTS = {"put_rate": "op/s", "put_latency": "s"}


def available() -> Availability:
    """Return whether the server and its command line are here, and a client can be compiled."""
    return missing_tools(["redis-server", "redis-cli", "g++", "timeout"], INSTALL_COMMAND)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]


def _commands(folder: Path, ports: Sequence[int]) -> list[list[str]]:
    """Return the commands of the primary, which is the first one, and of its replicas."""
    found = []
    for number, port in enumerate(ports):
        own = folder / f"{number}"
        own.mkdir()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--unixsocket", str(own / "redis.sock"), "--dir", str(own), "--save", ""]
        command += ["--appendonly", "no", "--daemonize", "no", "--logfile", str(own / "log")]
        command += ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
        if number != 0:
            command += ["--replicaof", "127.0.0.1", str(ports[0])]
        found.append(command)
    return found


def followers(replication: str) -> int:
    """Return how many replicas follow a primary, by its answer to ``INFO replication``.

    Raises
    ------
    PeerError
        The answer is not that of a primary.
    """
    lines = replication.splitlines()
    if "role:master" not in lines:
        raise PeerError(f"Redis's answer about its replicas is: {replication}")
    return sum(line.startswith("slave") and ",state=online," in line for line in lines)


def _last_words(folder: Path) -> str:
    logs = sorted(folder.glob("*/log"))
    return "\n".join(line for log in logs for line in log.read_text().splitlines()[-3:])


def _follow(folder: Path, servers: Sequence[subprocess.Popen[str]], primary: Path) -> bool:
    """Wait until all replicas follow; return False if a server has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if any(server.poll() is not None for server in servers):
            return False
        if primary.exists():
            answer = output_of(["redis-cli", "-s", str(primary), "INFO", "replication"])
            if followers(answer) == REPLICAS:
                return True
        time.sleep(0.02)
    raise PeerError(
        f"not all replicas of Redis followed within 20 s; the logs end with:\n{_last_words(folder)}"
    )


@contextlib.contextmanager
def _servers() -> Iterator[Path]:
    """Yield the socket of a primary that all replicas follow; all end afterwards.

    Raises
    ------
    PeerError
        The servers do not start.
    """
    said = ""
    for _ in range(3):  # another program may take a port first
        with contextlib.ExitStack() as running:
            folder = running.enter_context(shared_memory_folder())
            commands = _commands(folder, _free_ports(1 + REPLICAS))
            servers = [running.enter_context(started(command)) for command in commands]
            primary = folder / "0" / "redis.sock"
            if _follow(folder, servers, primary):
                yield primary
                return
            said = _last_words(folder)
    raise PeerError(f"a server of Redis ended at once; the logs end with:\n{said}")


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the client if necessary, start the servers, and measure."""
    names = chosen(measurements, MEASUREMENTS)
    source = Path(__file__).with_name("redis_wait.cc")
    program = compiled(source, ["g++", "-std=c++17", "-O3"])
    values = {}
    with _servers() as primary:
        for name in names:
            numbers = [f"{seconds:g}", str(REPLICAS), str(_CONNECTIONS[name])]
            text = output_of([str(program), str(primary), *numbers])
            values.update(named_values(text, [name]))
    return values
