"""A topic of Eclipse Cyclone DDS between two processes, over UDP through the loopback.

``cyclonedds.c``, beside this file, is the program. The reader and the writer are reliable, and the
reader checks that it is given all samples in order.

``rate_SIZE``
    Samples of `SIZE` octets that the reader takes per second. Both sides keep all samples, so the
    writer waits for the reader. Samples are sent in batches, in packets as large as UDP allows.
    Up to 4 MiB wait in the socket and in the writer, if ``net.core.rmem_max`` allows that. So there
    are 2 to 3 times the samples of the usual settings. The processes are not pinned, since the
    kernel places their threads better.
``latency_SIZE``
    The median of half a round trip of one sample. All threads share a CPU. On this kind of machine
    that is six times faster than a CPU for each process, since no CPU must be woken.
"""

from __future__ import annotations

import os
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
    two_cpus,
)

NAME = "Cyclone DDS"
INSTALL_COMMAND = "apt-get install cyclonedds-dev cyclonedds-tools g++"
SIZES = (1024, 10240)

MEASUREMENTS = {**{f"rate_{size}": "op/s" for size in SIZES}, "latency_1024": "s"}

# Other programs that use DDS on this machine have other domains, or ignore those of another tag.
_CONFIGURATION = """
<CycloneDDS><Domain Id="{domain}">
  <General>
    <Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces>
    <AllowMulticast>false</AllowMulticast>
    {packets}
  </General>
  <Discovery>
    <Tag>{tag}</Tag>
    <ParticipantIndex>auto</ParticipantIndex>
    <Peers><Peer address="127.0.0.1"/></Peers>
  </Discovery>
  {internal}
</Domain></CycloneDDS>
"""
_LARGE_PACKETS = """
    <MaxMessageSize>65500B</MaxMessageSize>
    <FragmentSize>65000B</FragmentSize>
"""
_BATCHES = """
  <Internal>
    <WriteBatch>true</WriteBatch>
    <SocketReceiveBufferSize max="{waiting}B"/>
    {watermarks}
  </Internal>
"""
_WATERMARKS = """
    <Watermarks>
      <WhcHigh>{waiting}B</WhcHigh>
      <WhcHighInit>{start}B</WhcHighInit>
    </Watermarks>
"""
_MOST_WAITING = 4 << 20
_USUAL_WAITING = 1 << 20  # what a socket asks for without these settings
# A domain's ports are 250 apart, from 7400 on; later domains have those that clients are given.
_DOMAINS = 100


def available() -> Availability:
    """Return whether the compilers, the headers of Cyclone DDS and two CPUs are available."""
    tools = missing_tools(["g++", "gcc", "idlc", "taskset", "timeout"], INSTALL_COMMAND)
    if not tools.ok:
        return tools
    if not has_header("dds/dds.h"):
        return Availability(False, "the header dds/dds.h is missing", INSTALL_COMMAND)
    return two_cpus(INSTALL_COMMAND)


def _program() -> Path:
    source = Path(__file__).with_name("cyclonedds.c")
    # idlc knows no --version. A variable has it, so that another version compiles again.
    version = output_of(["idlc", "-v"]).strip()
    generator = ["env", f"IDLC_VERSION={version}", "idlc", "-o", "{folder}"]
    compiler = ["gcc", "-std=c11", "-O2", "-I{folder}", "{folder}/cyclonedds.c"]
    return compiled(source, compiler, ["-lddsc"], generator, source.with_suffix(".idl"))


def _batches() -> str:
    """Return the settings of batches.

    A writer that may have more samples under way than the socket of the reader holds loses some,
    sends them again, and is three times slower. So it may have more than usual only if the kernel
    grants the socket more than usual.
    """
    try:
        granted = int(Path("/proc/sys/net/core/rmem_max").read_text(encoding="ascii"))
    except OSError:  # the namespace of a container may not show it
        granted = 0
    waiting = min(granted, _MOST_WAITING)
    more = waiting > _USUAL_WAITING
    watermarks = _WATERMARKS.format(waiting=waiting, start=waiting // 4) if more else ""
    return _BATCHES.format(waiting=_MOST_WAITING, watermarks=watermarks)


def _environment(*, batches: bool) -> dict[str, str]:
    pid = os.getpid()
    configuration = _CONFIGURATION.format(
        domain=1 + pid % _DOMAINS,
        tag=f"pyrdma-peer-{pid}",
        packets=_LARGE_PACKETS if batches else "",
        internal=_batches() if batches else "",
    )
    return {"CYCLONEDDS_URI": configuration}


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the program if necessary and measure; the module describes the measurements."""
    names = chosen(measurements, MEASUREMENTS)
    program = _program()
    values: dict[str, float] = {}
    for name in names:
        kind, _, size = name.partition("_")
        command = [str(program), size, f"{seconds:g}", kind]
        if kind == "latency":
            command = ["taskset", "-c", str(cpu_pair()[1]), *command]
        text = output_of(command, _environment(batches=kind == "rate"))
        values[name] = named_values(text, [kind])[kind]
    return values
