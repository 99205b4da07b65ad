"""perftest, the RDMA community's own benchmark, over the device that a node of ours would use.

The measurements:

``write_latency_8``, ``send_latency_8``
    ``ib_write_lat``, ``ib_send_lat``: half the median round trip of a ping-pong of 8 bytes, seen in
    memory, or by the completion of a receive.
``read_latency_8``, ``fetch_add_latency_8``
    ``ib_read_lat``, ``ib_atomic_lat``: the median from post to completion.
``write_bandwidth_4096``
    ``ib_write_bw``: writes of 4 KiB, 128 in flight, one completion per 100; the mean.

Server and client run on this machine, through the device's loopback. They are not pinned: a pinned
process that spins would take the CPU that the kernel thread of a software device needs.
"""

from __future__ import annotations

import contextlib
import math
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyrdma import devices
from pyrdma.bench.peer import (
    Availability,
    PeerError,
    chosen,
    missing_tools,
    output_of,
    started,
    two_cpus,
)
from pyrdma.errors import Unavailable

NAME = "perftest"
INSTALL_COMMAND = "apt-get install perftest"
MIB = 1 << 20


@dataclass(frozen=True)
class _Test:
    unit: str
    program: str
    arguments: str
    column: str
    scale: float
    typical_rate: float  # requests per second; turns a duration into a number of iterations


_TESTS = {
    "write_latency_8": _Test("s", "ib_write_lat", "-s 8", "t_typical[usec]", 1e-6, 4e3),
    "send_latency_8": _Test("s", "ib_send_lat", "-s 8", "t_typical[usec]", 1e-6, 4e3),
    "read_latency_8": _Test("s", "ib_read_lat", "-s 8", "t_typical[usec]", 1e-6, 4e3),
    "fetch_add_latency_8": _Test(
        "s", "ib_atomic_lat", "-A FETCH_AND_ADD", "t_typical[usec]", 1e-6, 4e3
    ),
    "write_bandwidth_4096": _Test(
        "byte/s", "ib_write_bw", "-s 4096", "BW average[MB/sec]", MIB, 4e3
    ),
}
MEASUREMENTS = {name: test.unit for name, test in _TESTS.items()}


def available() -> Availability:
    """Return whether perftest, a device for it, and two CPUs are available."""
    tool = missing_tools([test.program for test in _TESTS.values()], INSTALL_COMMAND)
    if not tool.ok:
        return tool
    try:
        devices.choose()
    except Unavailable as error:
        return Availability(False, str(error), "pyrdma doctor")
    return two_cpus(INSTALL_COMMAND)


def parse(text: str, column: str) -> float:
    """Return the value in the last row under `column`.

    Raises
    ------
    PeerError
        The output has no such column or no row.
    """
    titles: list[str] = []
    value = 0.0
    for line in text.splitlines():
        if line.lstrip().startswith("#bytes"):
            # Some titles contain a space: "BW average[MB/sec]", "99% percentile[usec]".
            titles = line.replace("BW ", "BW").replace("% ", "%").split()
        elif titles and line.split()[:1] and line.split()[0].isdigit():
            row = dict(zip(titles, line.split(), strict=False))
            value = float(row.get(column.replace("BW ", "BW"), 0))
    if not 0 < value < math.inf:
        raise PeerError(f"perftest printed no {column}; its output is:\n{text}")
    return value


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    # perftest would take a trial connection for the client.
    suffix = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(suffix) and fields[3] == "0A":
                return True
    return False


def _await_listening(server: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + 20
    while not _listens(port):
        if server.poll() is not None:
            _, said = server.communicate()
            raise PeerError(f"the server of perftest ended at once:\n{said[-1000:]}")
        if time.monotonic() > deadline:
            raise PeerError("perftest did not listen within 20 s")
        time.sleep(0.02)


def _measure(test: _Test, seconds: float) -> float:
    device = devices.choose()
    iterations = max(1000, int(test.typical_rate * seconds))
    where = f"-d {device['device']} -i {device['port']} -x {device['gid_index']}"
    arguments = [*where.split(), *test.arguments.split(), "-n", str(iterations), "-F"]
    port = _free_port()
    command = [test.program, *arguments, "-p", str(port)]
    with started(command) as server:
        _await_listening(server, port)
        text = output_of([*command, "127.0.0.1"])
    return parse(text, test.column) * test.scale


def _measure_again(test: _Test, seconds: float, attempts: int = 4) -> float:
    # perftest calibrates the CPU's clock itself, and prints "inf" when two readings differ too
    # much.
    for _ in range(attempts - 1):
        with contextlib.suppress(PeerError):
            return _measure(test, seconds)
    return _measure(test, seconds)


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Measure with perftest; the module describes the measurements."""
    return {
        name: _measure_again(_TESTS[name], seconds) for name in chosen(measurements, MEASUREMENTS)
    }
