"""Redis over a Unix socket, loaded by its own benchmark client, each on a CPU of its own.

The server has neither persistence nor a network port, and ends with the measurement. Keys are drawn
from `KEYS`, which all exist; values have 8 bytes. ``pipelined`` means 128 requests in flight on
each of 4 connections. Without it, 50 connections have one request in flight each, which is the
client's default.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyrdma.bench.peer import (
    Availability,
    PeerError,
    chosen,
    cpu_pair,
    missing_tools,
    output_of,
    shared_memory_folder,
    started,
    two_cpus,
)

NAME = "Redis"
INSTALL_COMMAND = "apt-get install redis-server redis-tools"
KEYS = 100_000
PIPELINE = 128

_PIPELINED = ("-c", "4", "-P", str(PIPELINE))
_ARGUMENTS = {
    "lookup_rate": ("get", _PIPELINED),
    "update_rate": ("set", _PIPELINED),
    "lookup_rate_unpipelined": ("get", ("-c", "50", "-P", "1")),
    "update_rate_unpipelined": ("set", ("-c", "50", "-P", "1")),
}
_LEAST_RATE = {True: 2e6, False: 1e5}  # pipelined or not; sets the length of a run
MEASUREMENTS = dict.fromkeys(_ARGUMENTS, "op/s")


def available() -> Availability:
    """Return whether the server, its client, and a CPU for each are available."""
    tools = ["redis-server", "redis-benchmark", "redis-cli", "taskset", "timeout"]
    found = missing_tools(tools, INSTALL_COMMAND)
    return two_cpus(INSTALL_COMMAND) if found.ok else found


@contextmanager
def _server(folder: Path) -> Iterator[Path]:
    """Yield the socket of a running server, which ends afterwards."""
    socket = folder / "redis.sock"
    cpu, _ = cpu_pair()
    command = ["taskset", "-c", str(cpu), "redis-server", "--port", "0"]
    command += ["--unixsocket", str(socket), "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", ""]
    with started(command) as server:
        deadline = time.monotonic() + 10
        while not socket.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise PeerError(f"`{' '.join(command)}` did not open its socket")
            time.sleep(0.01)
        yield socket


def _rate(socket: Path, test: str, arguments: Sequence[str], operations: int) -> float:
    """Run the client for this number of operations and return its rate."""
    _, cpu = cpu_pair()
    command = ["taskset", "-c", str(cpu), "redis-benchmark", "-s", str(socket), "--csv"]
    command += ["-t", test, "-n", str(operations), "-r", str(KEYS), "-d", "8", *arguments]
    rows = [row for row in csv.reader(output_of(command).splitlines()) if row]
    for row in rows:
        if row[0].lower().startswith(test):
            return float(row[1])
    raise PeerError(f"`{' '.join(command)}` printed no rate of {test}")


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Start a server, fill it, and measure."""
    names = chosen(measurements, MEASUREMENTS)
    values = {}
    with shared_memory_folder() as folder, _server(folder) as socket:
        fill = f"for i = 0, {KEYS} - 1 do redis.call('set', string.format('key:%012d', i), "
        output_of(["redis-cli", "-s", str(socket), "eval", fill + "'xxxxxxxx') end", "0"])
        for name in names:
            test, arguments = _ARGUMENTS[name]
            operations = int(_LEAST_RATE[arguments is _PIPELINED] * seconds)
            values[name] = _rate(socket, test, arguments, operations)
    return values
