"""Connections of Unix-domain sockets between two pinned processes.

``unix_sockets.cc``, beside this file, is the program. A connection ends when the client has read a
byte that the server writes after `accept`; the next one begins then.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyrdma.bench.peer import (
    Availability,
    chosen,
    compiled,
    cpu_pair,
    missing_tools,
    named_values,
    output_of,
    shared_memory_folder,
    two_cpus,
)

NAME = "Unix sockets"
INSTALL_COMMAND = "apt-get install g++"

MEASUREMENTS = {"connect_rate": "op/s"}


def available() -> Availability:
    """Return whether a compiler and two CPUs are available."""
    tools = missing_tools(["g++", "timeout"], INSTALL_COMMAND)
    return two_cpus(INSTALL_COMMAND) if tools.ok else tools


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the program if necessary and measure; the module describes the measurement."""
    names = chosen(measurements, MEASUREMENTS)
    program = compiled(Path(__file__).with_name("unix_sockets.cc"), ["g++", "-std=c++17", "-O3"])
    with shared_memory_folder() as folder:
        numbers = [str(folder / "socket"), f"{seconds:g}", *map(str, cpu_pair())]
        return named_values(output_of([str(program), *numbers]), names)
