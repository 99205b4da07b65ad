"""Workloads: what each node of a cluster does, as data; the loops themselves are native.

Every field is a parameter of the native workload of the same name, which checks it and names
key, value and bound when it is wrong. A field left None takes the native default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ._workload import Parameters, Workload
from ._workload_loco import (
    LocoBarrier,
    LocoLitmus,
    LocoLock,
    LocoPower,
    LocoTransactions,
    LocoYcsb,
    Ycsb,
)
from .errors import InvalidArgument

__all__ = [
    "ControlPath",
    "Custom",
    "Idle",
    "Litmus",
    "LocoBarrier",
    "LocoLitmus",
    "LocoLock",
    "LocoPower",
    "LocoTransactions",
    "LocoYcsb",
    "Memcpy",
    "Soak",
    "VerbsLoad",
    "Workload",
    "Ycsb",
]


@dataclass(frozen=True)
class VerbsLoad(Workload):
    """Raw verbs under load, with perftest's axes.

    Parameters
    ----------
    op, transport, size
        The requests: operation, transport and payload bytes.
    depth, batch, signal_every
        Requests in flight per thread, handed over by one post (one doorbell), per completion
        asked for.
    threads, clients, qps
        Sending threads per client node, or in all; queue pairs per thread.
    servers, server_threads
        The first `servers` nodes only answer, with so many threads that receive; 0: every node
        does both.
    pattern
        Peers of a thread: one (``pair``), all in turn, or at random for each post.
    regions, region_bytes, addresses, device_memory
        Target memory of a server: how many regions of how many bytes, whether a request goes to
        the client's own place (``fixed``) or anywhere, and whether it is memory on the NIC.
    inline
        Payload in the request: 1, 0, or -1 where it fits.
    mode
        ``rate``: a full window; ``latency``: one request at a time, each recorded; ``open``:
        arrivals at random times, `interval_ns` apart in the mean, latency from the intended start.
    measure
        Latency until the ``completion``, or half a ``pingpong`` seen in memory.
    record_latency, record_post, clock_every
        Record latencies in ``rate`` mode too; the CPU time of a post too; clock readings per
        round trips of a ping-pong.
    warmup_ns
        Time before measuring, discarded.
    iterations
        Measured requests per thread, at most.
    """

    native: ClassVar[str] = "verbs_load"
    op: Literal["write", "read", "send", "write_imm", "fetch_add", "compare_swap"] | None = None
    transport: Literal["rc", "uc", "ud", "dc"] | None = None
    size: int | None = None
    depth: int | None = None
    batch: int | None = None
    signal_every: int | None = None
    threads: int | None = None
    clients: int | None = None
    qps: int | None = None
    servers: int | None = None
    server_threads: int | None = None
    pattern: Literal["pair", "all", "random"] | None = None
    regions: int | None = None
    region_bytes: int | None = None
    addresses: Literal["fixed", "random"] | None = None
    device_memory: bool | None = None
    inline: int | None = None
    mode: Literal["rate", "latency", "open"] | None = None
    measure: Literal["completion", "pingpong"] | None = None
    record_latency: bool | None = None
    record_post: bool | None = None
    clock_every: int | None = None
    interval_ns: int | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


@dataclass(frozen=True)
class ControlPath(Workload):
    """Connection set-up, timed by phase: open, pd, register, create, handshake, configure.

    Parameters
    ----------
    clients
        Threads that connect, over all client nodes; node 0 is the server.
    skip_open
        Keep the device, protection domain and memory of the first connection, as a kernel
        service that holds them does.
    region_bytes, queue_entries
        Memory that a client registers; entries of each of its queues.
    warmup_ns, iterations
        Time before measuring; connections per client, one if there is no duration.
    """

    native: ClassVar[str] = "control_path"
    clients: int | None = None
    skip_open: bool | None = None
    region_bytes: int | None = None
    queue_entries: int | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


@dataclass(frozen=True)
class Litmus(Workload):
    """Small concurrent programs over raw fabric operations, held to the memory model.

    Metrics of node 0: for each outcome that is allowed or was seen
    ``outcome|SHAPE|LEVEL|VALUES``, how often it was seen; ``rounds``; ``forbidden``, outcomes
    seen that no level allows: 0 unless the fabric is broken; ``unseen``, outcomes of late
    memory that were not seen. Levels, each weaker than the one before: ``sequential``,
    ``asynchronous`` (both of strong memory), ``late``, ``repeated``, ``store buffer``; then
    ``forbidden``.

    Parameters
    ----------
    shape
        A built-in test by its name, or ``all``, which needs 4 nodes.
    rounds, batch
        Rounds of each test, at least; rounds between two meetings of the nodes.
    locations, threads, observed
        A test of one's own instead, in the language of `native/measure/litmus/program.h`:
        ``Litmus(locations="x@1 f@1", threads="0: put x 1; put f 1 | 1: load r0 f; load r1 x",
        observed="r0 r1")``.
    """

    native: ClassVar[str] = "litmus"
    shape: str | None = None
    rounds: int | None = None
    batch: int | None = None
    locations: str | None = None
    threads: str | None = None
    observed: str | None = None


@dataclass(frozen=True)
class Memcpy(Workload):
    """Copies of `size` bytes in local memory: latency and bandwidth.

    Parameters
    ----------
    footprint_bytes
        Memory that sources and targets walk through; one of each if left out.
    """

    native: ClassVar[str] = "memcpy"
    size: int | None = None
    footprint_bytes: int | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


@dataclass(frozen=True)
class Idle(Workload):
    """Threads that wait: what a node costs."""

    native: ClassVar[str] = "idle"
    threads: int | None = None


@dataclass(frozen=True)
class Soak(Workload):
    """Checked data from every node to every other, while nodes are killed and started again.

    Metrics: ``rounds`` exchanged, peers ``met`` and ``lost``, ``wrong``: words, counters, messages
    or statuses that cannot be, 0 unless the fabric is broken; and of node 0, for each end of a
    node that a peer noticed, ``lost/KILLED/PEER`` (node.incarnation): when, in ns of the run.

    Parameters
    ----------
    size
        Bytes that a round writes, reads back and compares.
    interval_ns
        Pause between two rounds with one peer.
    """

    native: ClassVar[str] = "soak"
    survives: ClassVar[bool] = True
    size: int | None = None
    interval_ns: int | None = None


@dataclass(frozen=True)
class Custom(Workload):
    """A workload of one's own, from a shared library built against the installed headers.

    Parameters
    ----------
    library
        ``path.so:name``.
    settings
        Its parameters.
    """

    library: str
    settings: Parameters = field(default_factory=dict)

    def __post_init__(self) -> None:
        if ".so:" not in self.library:
            raise InvalidArgument(f"workload {self.library!r} must be path.so:name")

    @property
    def name(self) -> str:
        """The library and the name in it."""
        return self.library

    def parameters(self, duration_s: float | None = None) -> Parameters:
        """Return `settings`, and the duration if there is one."""
        values = dict(self.settings)
        if duration_s is not None:
            values["duration_ns"] = round(duration_s * 1e9)
        return values
