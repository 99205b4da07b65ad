"""SimGrid's messages per second of CPU time, from a ping-pong of actors.

The program is ``ping_pong.cc``, beside this file. Each message counts as one simulated operation,
although a one-sided operation of ours is two messages on the wire: a request and an
acknowledgement or response. SimGrid runs with its default network model, LV08 with cross-traffic,
on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyrdma.bench.peer import (
    Availability,
    chosen,
    compiled,
    has_header,
    missing_tools,
    named_values,
    output_of,
)

NAME = "SimGrid"
INSTALL_COMMAND = "apt-get install libsimgrid-dev g++"

MEASUREMENTS = {"message_rate_16": "op/s", "message_rate_1000": "op/s"}
_TYPICAL_RATE = 0.3e6


def available() -> Availability:
    """Return whether a compiler and SimGrid's headers are available."""
    tools = missing_tools(["g++", "timeout"], INSTALL_COMMAND)
    if not tools.ok:
        return tools
    if not has_header("simgrid/s4u.hpp"):
        return Availability(False, "the header simgrid/s4u.hpp is missing", INSTALL_COMMAND)
    return Availability(True, "", INSTALL_COMMAND)


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the program if necessary and measure; the module describes the measurements."""
    source = Path(__file__).with_name("ping_pong.cc")
    program = compiled(source, ["g++", "-std=c++17", "-O2"], ["-lsimgrid"])
    values: dict[str, float] = {}
    for name in chosen(measurements, MEASUREMENTS):
        hosts = int(name.rpartition("_")[2])
        round_trips = max(10, int(_TYPICAL_RATE * seconds / hosts))
        command = [str(program), str(hosts), str(round_trips)]
        values[name] = named_values(output_of(command), ["message_rate"])["message_rate"]
    return values
