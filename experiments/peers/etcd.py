"""etcd with three members on this machine, and one client that PUTs.

The members talk through ports of the loopback that were free, and keep their data on ``/dev/shm``,
where a sync costs nothing. The client, ``etcd.cc`` beside this file, is connected to the leader by
gRPC, which is faster than the gateway for HTTP. It sends the next PUT after the answer to the last:
keys of 16 bytes drawn from a million, values of 64 bytes. ``put_latency`` is the median. No process
is pinned, since four share the CPUs, and none has a special priority.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyrdma.bench import grpc_programs
from pyrdma.bench.peer import (
    Availability,
    PeerError,
    chosen,
    missing_tools,
    named_values,
    output_of,
    shared_memory_folder,
    started,
)

NAME = "etcd"
INSTALL_COMMAND = f"{grpc_programs.INSTALL_COMMAND} etcd-server"
MEMBERS = 3

MEASUREMENTS = {"put_latency": "s"}


def available() -> Availability:
    """Return whether the server is here, and a client can be compiled."""
    server = missing_tools(["etcd", "timeout"], INSTALL_COMMAND)
    return grpc_programs.available(INSTALL_COMMAND) if server.ok else server


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]


def _commands(folder: Path, clients: Sequence[int], peers: Sequence[int]) -> list[list[str]]:
    """Return the command of each member. A member's environment is empty: etcd reads options there.

    Raises
    ------
    PeerError
        etcd is not on ``PATH``.
    """
    program = shutil.which("etcd")
    if program is None:
        raise PeerError(f"etcd is not on PATH; to get it: {INSTALL_COMMAND}")
    members = range(len(peers))
    cluster = ",".join(f"m{i}=http://127.0.0.1:{peers[i]}" for i in members)
    found = []
    for i in members:
        client, peer = f"http://127.0.0.1:{clients[i]}", f"http://127.0.0.1:{peers[i]}"
        options = {
            "name": f"m{i}",
            "data-dir": str(folder / f"m{i}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": cluster,
            "initial-cluster-state": "new",
            "logger": "zap",
            "log-outputs": str(folder / f"m{i}.log"),
        }
        found.append(["env", "-i", program, *(f"--{key}={options[key]}" for key in options)])
    return found


def is_leader(status: str) -> bool:
    """Return whether the member that gave this answer about its status leads the others.

    Raises
    ------
    PeerError
        The answer is not one of etcd's.
    """
    try:
        fields = json.loads(status)
        member, leader = fields["header"]["member_id"], fields.get("leader", "0")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PeerError(f"etcd's answer about its status is: {status}") from error
    return bool(member == leader)


def _leads(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("POST", "/v3/maintenance/status", "{}")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return False  # it does not listen yet
    finally:
        connection.close()
    return answer.status == 200 and is_leader(text)


def _last_words(folder: Path) -> str:
    logs = sorted(folder.glob("m*.log"))
    return "\n".join(line for log in logs for line in log.read_text().splitlines()[-3:])


def _leader(
    folder: Path, members: Sequence[subprocess.Popen[str]], ports: Sequence[int]
) -> int | None:
    """Return the leader's port; None if a member has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if any(member.poll() is not None for member in members):
            return None
        for port in ports:
            if _leads(port):
                return port
        time.sleep(0.02)
    raise PeerError(f"etcd had no leader within 20 s; its logs end with:\n{_last_words(folder)}")


@contextlib.contextmanager
def _cluster() -> Iterator[str]:
    """Yield the address of the leader of a new cluster, which ends afterwards.

    Raises
    ------
    PeerError
        The members do not start or elect no leader.
    """
    said = ""
    for _ in range(3):  # another program may take a port first
        ports = _free_ports(2 * MEMBERS)
        clients, peers = ports[:MEMBERS], ports[MEMBERS:]
        with contextlib.ExitStack() as running:
            folder = running.enter_context(shared_memory_folder())
            commands = _commands(folder, clients, peers)
            members = [running.enter_context(started(command)) for command in commands]
            port = _leader(folder, members, clients)
            if port is not None:
                yield f"127.0.0.1:{port}"
                return
            said = _last_words(folder)
    raise PeerError(f"a member of etcd ended at once; the logs end with:\n{said}")


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the client if necessary, start the members, and measure."""
    names = chosen(measurements, MEASUREMENTS)
    program = grpc_programs.program(Path(__file__).with_name("etcd.cc"))
    with _cluster() as leader:
        return named_values(output_of([str(program), leader, f"{seconds:g}"]), names)
