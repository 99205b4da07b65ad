"""UCX's own performance test over posix shared memory, between two pinned processes.

The measurements, read from the source of ``ucx_perftest`` and confirmed by running it:

``write_latency_64``
    ``put_lat -D short``: each side copies 64 bytes into the other's mapped memory and spins on the
    last byte of its own buffer, a sequence number. The value is half the mean round trip. There are
    no completions; the clock is read once per round trip.
``write_rate_64``
    ``put_bw -D short``: one side copies 64 bytes to the same remote address in a loop. A put is
    complete when the copy returns, so there is no window. The worker is progressed once in 16
    puts. One sentinel and one flush at the end are inside the measured time. The target spins on
    the first byte of the buffer, which costs the writer about a tenth.
``send_rate_64``
    ``am_bw -D short``: active messages of 64 bytes (with a header of 8), UCX's fastest way to
    send. The receiver's handler reads the header and copies nothing. The sender has at most 127
    messages without an acknowledgement; the receiver acknowledges every 64.
``tag_rate_64``
    ``tag_bw``: two-sided, with posted receives that the payload is copied to. It is closest in
    meaning to the verbs' SEND, and slower than ``send_rate_64``.
``fetch_add_rate_8``, ``read_rate_8``
    ``fadd`` and ``get -D bcopy``: one call per operation, complete when it returns.
"""

from __future__ import annotations

import csv
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
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

NAME = "UCX"
INSTALL_COMMAND = "apt-get install ucx-utils"


@dataclass(frozen=True)
class _Test:
    unit: str
    arguments: str
    typical_rate: float  # per second; turns a duration into a number of iterations


_UCT = "-x posix -d memory"
_TESTS = {
    "write_latency_64": _Test("s", f"{_UCT} -t put_lat -D short -s 64", 10e6),
    "write_rate_64": _Test("op/s", f"{_UCT} -t put_bw -D short -s 64", 60e6),
    "send_rate_64": _Test("op/s", f"{_UCT} -t am_bw -D short -s 64", 14e6),
    "tag_rate_64": _Test("op/s", "-t tag_bw -s 64", 12e6),
    "read_rate_8": _Test("op/s", f"{_UCT} -t get -D bcopy -s 8", 40e6),
    "fetch_add_rate_8": _Test("op/s", f"{_UCT} -t fadd -s 8", 25e6),
}
MEASUREMENTS = {name: test.unit for name, test in _TESTS.items()}


def available() -> Availability:
    """Return whether ``ucx_perftest`` and two CPUs for it are available."""
    tool = missing_tools(["ucx_perftest", "timeout"], INSTALL_COMMAND)
    return two_cpus(INSTALL_COMMAND) if tool.ok else tool


def parse_rate(text: str) -> float:
    """Return the rate over the whole run, per second, from the output of ``-f -v``.

    The columns of times are rounded to a nanosecond or worse, the rates are not. In a ping-pong the
    rate is that of one-way trips.

    Raises
    ------
    PeerError
        The output has no such column or no row.
    """
    rows = list(csv.DictReader(text.splitlines()))
    try:
        rate = float(rows[-1]["overall_mr"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise PeerError(f"ucx_perftest printed no message rate; its output is:\n{text}") from error
    if rate <= 0:
        raise PeerError(f"ucx_perftest printed a message rate of {rate:g}")
    return rate


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listening(port: int) -> bool:
    # ucx_perftest would take a trial connection for the client.
    suffix = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(suffix) and fields[3] == "0A":
            return True
    return False


def _wait_until_listening(server: subprocess.Popen[str], port: int) -> bool:
    """Return whether the server listens; it may have ended because the port is taken."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if _listening(port):
            return True
        if server.poll() is not None:
            return False
        time.sleep(0.005)
    raise PeerError("ucx_perftest did not listen within 10 s")


@cache
def _without_mpi() -> tuple[str, ...]:
    """Return the arguments that turn the MPI mode off, in which some builds start (Debian 13)."""
    usage = subprocess.run(["ucx_perftest", "-h"], capture_output=True, text=True, check=False)
    return ("-P", "0") if "-P <0|1>" in usage.stdout + usage.stderr else ()


def _measure(arguments: Sequence[str]) -> float:
    client_cpu, server_cpu = cpu_pair()
    said = ""
    for _ in range(5):
        port = str(_free_port())
        with shared_memory_folder() as folder:
            env = {
                "UCX_TLS": "posix,self",
                "UCX_POSIX_DIR": str(folder),
                "UCX_WARN_UNUSED_ENV_VARS": "n",
            }
            command = ["ucx_perftest", *_without_mpi(), "-p", port]
            # UCX 1.18 requires the device at both ends.
            with started([*command, "-c", str(server_cpu), *arguments], env) as server:
                if not _wait_until_listening(server, int(port)):
                    said = " ".join(server.communicate()).strip()
                    continue
                client = [*command, "127.0.0.1", "-c", str(client_cpu), "-f", "-v", *arguments]
                return parse_rate(output_of(client, env))
    raise PeerError(f"ucx_perftest did not listen in 5 attempts; its last output is: {said}")


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Measure with ``ucx_perftest``; the module describes the measurements."""
    values: dict[str, float] = {}
    for name in chosen(measurements, MEASUREMENTS):
        test = _TESTS[name]
        iterations = max(10_000, int(test.typical_rate * seconds))
        rate = _measure([*test.arguments.split(), "-n", str(iterations)])
        values[name] = 1 / rate if test.unit == "s" else rate
    return values
