"""Unary calls of gRPC over a Unix socket, between two pinned processes.

``grpc_calls.cc``, beside this file, is the program. A call and its response carry 32 bytes. Both
sides use the asynchronous interface with one thread and one completion queue.

``rpc_rate``
    `IN_FLIGHT` calls in flight.
``rpc_latency``
    The median round trip with one call in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyrdma.bench import grpc_programs
from pyrdma.bench.peer import (
    Availability,
    chosen,
    cpu_pair,
    named_values,
    output_of,
    shared_memory_folder,
    two_cpus,
)

NAME = "gRPC"
IN_FLIGHT = 60

MEASUREMENTS = {"rpc_rate": "op/s", "rpc_latency": "s"}


def available() -> Availability:
    """Return whether gRPC can be compiled with here, and has two CPUs."""
    found = grpc_programs.available()
    return two_cpus(found.install_command) if found.ok else found


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the program if necessary and measure; the module describes the measurements."""
    names = chosen(measurements, MEASUREMENTS)
    program = grpc_programs.program(Path(__file__).with_name("grpc_calls.cc"))
    with shared_memory_folder() as folder:
        numbers = [f"{seconds:g}", IN_FLIGHT, *cpu_pair()]
        command = [str(program), str(folder / "socket"), *map(str, numbers), *names]
        return named_values(output_of(command), names)
