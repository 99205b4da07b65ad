"""Workload classes, written by ``python -m tests.generated.workload_classes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ._workload import DEFAULT, Workload

__all__ = [
    "ControlPath",
    "Idle",
    "Litmus",
    "Memcpy",
    "Soak",
    "VerbsLoad",
]


@dataclass(frozen=True)
class ControlPath(Workload):
    """Clients set connections up from scratch, over and over (KRCore, sections 2.3.1 and 5.1).

    Node 0 serves. A client of another node opens the device, creates protection domain, memory,
    queues and queue pair, exchanges addresses with the server and configures the connection.

    Latencies of one connection: ``connect`` in all, and by step ``open``, ``create_pd``,
    ``register``, ``create_cq``, ``create_qp``, ``handshake``, ``configure``.

    Parameters
    ----------
    clients
        Total number of connecting threads, distributed over all nodes except node 0, the server (1
        to 65,536, default 1).
    skip_open
        Keep device, protection domain and memory, as a kernel module does (default False).
    keep
        Keep every connection until the end, as a pool of connections does (default False).
    on_demand
        The server sets its end up when the client asks, as a connection manager does (default
        False).
    region_bytes
        Memory that a client registers (B, at least 1, default 4,096).
    queue_entries
        Entries of the send, receive and completion queues (1 to 32,768, default 128).
    warmup_ns
        Not measured, at the beginning (ns, at least 0, default 0).
    iterations
        Connections per client, at most; 0: by time (at least 0, default 1).
    """

    native: ClassVar[str] = "control_path"
    clients: int = DEFAULT
    skip_open: bool = DEFAULT
    keep: bool = DEFAULT
    on_demand: bool = DEFAULT
    region_bytes: int = DEFAULT
    queue_entries: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class Idle(Workload):
    """Idle threads, to measure the cost of a node.

    Parameters
    ----------
    threads
        Threads per node that wait (1 to 1,024, default 1).
    """

    native: ClassVar[str] = "idle"
    threads: int = DEFAULT


@dataclass(frozen=True)
class Litmus(Workload):
    """Compares outcomes of small concurrent programs with the memory model.

    The programs use raw fabric operations. Metrics of node 0: ``outcome|SHAPE|LEVEL|VALUES``, the
    number of times that an allowed or seen outcome was seen; ``rounds``; ``forbidden``, seen
    outcomes that no level allows (0 unless the fabric is broken); ``unseen``, outcomes of late
    memory that were not seen. Each level is weaker than the one before: ``sequential``,
    ``asynchronous`` (both of strong memory), ``late``, ``repeated``, ``store buffer``,
    ``forbidden``.

    A program is a built-in `shape`, or is written in the language of
    `native/measure/litmus/program.h`: ``Litmus(locations="x@1 f@1", threads="0: put x 1; put f 1 |
    1: load r0 f; load r1 x", observed="r0 r1")``.

    Parameters
    ----------
    shape
        Built-in test to run, by its name; all runs every test and needs 4 nodes (default all).
    rounds
        Least rounds of each test (at least 1, default 1,000).
    batch
        Rounds between two synchronisations of the nodes (1 to 16,384, default 256).
    locations
        Locations of a user's test: name@node....
    threads
        Threads of a user's test: node: instruction; ... | ....
    observed
        Registers and locations that a user's test observes.
    """

    native: ClassVar[str] = "litmus"
    shape: str = DEFAULT
    rounds: int = DEFAULT
    batch: int = DEFAULT
    locations: str = DEFAULT
    threads: str = DEFAULT
    observed: str = DEFAULT


@dataclass(frozen=True)
class Memcpy(Workload):
    """One thread of every node copies `size` bytes in local memory: latency ``memcpy``, bandwidth.

    Parameters
    ----------
    size
        Bytes of a copy (B, at least 1, default 64).
    footprint_bytes
        Memory that sources and targets cycle through; 0: one of each (B, at least 0, default 0).
    warmup_ns
        Not measured, at the beginning (ns, at least 0, default 10,000).
    iterations
        Measured copies, at most; 0: by time (at least 0, default 0).
    """

    native: ClassVar[str] = "memcpy"
    size: int = DEFAULT
    footprint_bytes: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class Soak(Workload):
    """Every node exchanges checked data with every other while nodes are killed and restarted.

    Metrics: ``rounds`` exchanged, peers ``met`` and ``lost``; ``wrong``, impossible words,
    counters, messages and statuses (0 unless the fabric is broken). Node 0 records
    ``lost/KILLED/PEER`` (node.incarnation) when a peer notices the end of a node: the time in ns
    since the start of the run.

    Parameters
    ----------
    size
        Bytes that a round writes, reads back and compares; a multiple of 8 (B, 8 to 1,048,576,
        default 4,096).
    interval_ns
        Pause between two rounds with one peer (ns, at least 0, default 100,000).
    """

    native: ClassVar[str] = "soak"
    survives: ClassVar[bool] = True
    size: int = DEFAULT
    interval_ns: int = DEFAULT


@dataclass(frozen=True)
class VerbsLoad(Workload):
    """Raw verbs under load, with perftest's axes.

    Metrics: ``ops``, ``rate``, ``bandwidth``; receivers add ``received`` and ``receive_rate``.
    Latencies: one of the operation's name, and ``post``, where recorded.

    Parameters
    ----------
    op
        Operation (default write).
    transport
        Transport of the queue pairs (default rc).
    size
        Payload of a request; atomics have 8 (B, at least 1, default 64).
    depth
        Requests in flight per thread (1 to 32,768, default 128).
    batch
        Requests per post; 0: a quarter of depth, at most 32 (0 to 4,096, default 0).
    signal_every
        Requests per signaled one; 0: a quarter of depth, or batch with several queue pairs (0 to
        16,384, default 0).
    signal_by
        Mode=rate: whose requests signal_every counts. queue_pair: batch is 1; reads are over when
        they are in memory, and depth bounds them. The first of signal_every requests has completed
        before the last is posted (default thread).
    refill
        Mode=rate: post as soon as the window has room, or a whole window when it is empty (default
        room).
    threads
        Sending threads per client node (1 to 1,024, default 1).
    clients
        Total number of sending threads, distributed round-robin over the client nodes; 0: threads
        on each (0 to 1,048,576, default 0).
    qps
        Queue pairs per thread (1 to 65,536, default 1).
    servers
        The first nodes, which only answer; 0: every node is both (0 to 65,535, default 1).
    server_threads
        Receiving threads per node, for send and write_imm (1 to 1,024, default 1).
    receive_strides
        Transport=ud: datagrams that one posted receive takes, a power of two (1 to 65,536, default
        1).
    pattern
        Peers: pair (one), all (in turn) or random (a random queue pair for each post) (default
        all).
    doorbells
        Sim: doorbell registers of a node, each behind a lock. Four have one queue pair each, and
        the others share the rest, as the mlx5 driver's do; 0: a register for each queue pair (0 to
        4,096, default 0).
    regions
        Target regions per server; a request goes to a random one (1 to 65,536, default 1).
    region_bytes
        Bytes of a region; 0: a place for each client (B, at least 0, default 0).
    addresses
        Fixed: the client's own place; random: anywhere, aligned to 8 (default fixed).
    device_memory
        Target regions in the NIC's memory (default False).
    inline
        Payload in the request: 1, 0, or -1 for when it fits (-1 to 1, default -1).
    mode
        Rate: a full window; latency: one request at a time; open: arrivals at random times (default
        rate).
    measure
        Latency until the completion, or half a round trip seen in memory (default completion).
    record_latency
        Mode=rate: also the latency of each signaled request (default False).
    record_post
        Mode=latency: also the CPU time of the post (default False).
    record_one_way
        Measure=pingpong: also the time of each single way, by the clocks of both nodes (default
        False).
    clock_every
        Round trips per clock reading of a ping-pong; a histogram's value is their mean (1 to
        1,048,576, default 1).
    interval_ns
        Mode=open: mean time between arrivals at a thread (ns, at least 0, default 0).
    warmup_ns
        Not measured, at the beginning (ns, at least 0, default 50,000).
    iterations
        Measured requests per thread, at most; 0: by time (at least 0, default 0).
    """

    native: ClassVar[str] = "verbs_load"
    op: Literal["write", "read", "send", "write_imm", "fetch_add", "compare_swap"] = DEFAULT
    transport: Literal["rc", "uc", "ud", "dc"] = DEFAULT
    size: int = DEFAULT
    depth: int = DEFAULT
    batch: int = DEFAULT
    signal_every: int = DEFAULT
    signal_by: Literal["thread", "queue_pair"] = DEFAULT
    refill: Literal["room", "empty"] = DEFAULT
    threads: int = DEFAULT
    clients: int = DEFAULT
    qps: int = DEFAULT
    servers: int = DEFAULT
    server_threads: int = DEFAULT
    receive_strides: int = DEFAULT
    pattern: Literal["pair", "all", "random"] = DEFAULT
    doorbells: int = DEFAULT
    regions: int = DEFAULT
    region_bytes: int = DEFAULT
    addresses: Literal["fixed", "random"] = DEFAULT
    device_memory: bool = DEFAULT
    inline: int = DEFAULT
    mode: Literal["rate", "latency", "open"] = DEFAULT
    measure: Literal["completion", "pingpong"] = DEFAULT
    record_latency: bool = DEFAULT
    record_post: bool = DEFAULT
    record_one_way: bool = DEFAULT
    clock_every: int = DEFAULT
    interval_ns: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
