"""RPCs built on UCX's active messages over posix shared memory, between two pinned processes.

``ucx_am.cc``, beside this file, is the program. Requests and responses have 32 bytes. Each is one
``ucp_am_send_nbx`` without a header of UCX, which is its short protocol; the number of the RPC's
slot precedes the payload. The server responds in the handler of the request, through an endpoint
that it has connected before. That is faster than the endpoint for replies that UCX can pass to the
handler.

``rpc_rate``
    Batches of 3, `IN_FLIGHT` requests in flight. From 30 to 60 in flight the rate is the same; with
    12 and with 120 it is lower. UCX's ring has its 64 elements, since a longer one is slower.
``rpc_latency``
    The median round trip with one request in flight.
``endpoint_rate``
    Endpoints that the client makes, flushes and closes, one after another. Their other end is the
    server's worker, whose address the client knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyrdma.bench.peer import (
    Availability,
    chosen,
    compiled,
    cpu_pair,
    has_header,
    missing_tools,
    named_values,
    output_of,
    shared_memory_folder,
    two_cpus,
)

NAME = "UCX"
INSTALL_COMMAND = "apt-get install libucx-dev g++"
BATCH = 3
IN_FLIGHT = 30

MEASUREMENTS = {"rpc_rate": "op/s", "rpc_latency": "s", "endpoint_rate": "op/s"}


def available() -> Availability:
    """Return whether a compiler, UCX's headers and two CPUs are available."""
    tools = missing_tools(["g++", "timeout"], INSTALL_COMMAND)
    if not tools.ok:
        return tools
    if not has_header("ucp/api/ucp.h"):
        return Availability(False, "the header ucp/api/ucp.h is missing", INSTALL_COMMAND)
    return two_cpus(INSTALL_COMMAND)


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the program if necessary and measure; the module describes the measurements."""
    names = chosen(measurements, MEASUREMENTS)
    source = Path(__file__).with_name("ucx_am.cc")
    program = compiled(source, ["g++", "-std=c++17", "-O3"], ["-lucp", "-lucs"])
    with shared_memory_folder() as folder:
        env = {
            "UCX_TLS": "posix,self",
            "UCX_POSIX_DIR": str(folder),
            "UCX_WARN_UNUSED_ENV_VARS": "n",
        }
        numbers = [f"{seconds:g}", IN_FLIGHT, BATCH, *cpu_pair()]
        text = output_of([str(program), *map(str, numbers), *names], env)
    return named_values(text, names)
