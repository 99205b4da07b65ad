"""Workloads: what each node of a cluster does, as data; the loops themselves are native.

Every field is a parameter of the native workload of the same name, which checks it and names
key, value and bound when it is wrong. A field left None takes the native default.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .errors import InvalidArgument
from .experiment import Value

if TYPE_CHECKING:
    from .loco import KvStore

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

Parameters = dict[str, Value | list[int]]


@dataclass(frozen=True)
class Workload:
    """A named native workload with its parameters; fields left None are not sent."""

    native: ClassVar[str] = ""
    survives: ClassVar[bool] = False
    """Whether it goes on when nodes are killed on purpose while it runs."""

    @property
    def name(self) -> str:
        """Name that the native table of workloads knows."""
        return self.native

    def parameters(self, duration_s: float | None = None) -> Parameters:
        """Return the parameters as the native workload takes them.

        With a duration a run ends by time, with ``iterations`` alone by their number.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        counted = "iterations" in values
        if duration_s is not None:
            if not duration_s > 0:
                raise InvalidArgument(f"duration_s is {duration_s}; it must be above 0")
            values["duration_ns"] = round(duration_s * 1e9)
            if counted and values["iterations"] is None:
                values["iterations"] = 0
        elif counted and values["iterations"] is not None:
            values["duration_ns"] = 0
        return {
            name: int(value) if isinstance(value, bool) else value
            for name, value in values.items()
            if value is not None
        }


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
class LocoBarrier(Workload):
    """Every node waits at a LOCO barrier again and again (its figure 1b): latency ``barrier``.

    Parameters
    ----------
    polling
        Who polls for completions: a ``thread`` of its own as in the paper, or the ``callers``.
    warmup_ns, iterations
        Time before measuring; measured waits, at most.
    """

    native: ClassVar[str] = "loco_barrier"
    polling: Literal["thread", "callers"] | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


@dataclass(frozen=True)
class LocoLitmus(Workload):
    """The shapes of `Litmus` through LOCO's objects: writes with fences, reads, atomic_vars.

    Metrics of node 0, of 4: ``outcome|SHAPE|LEVEL|VALUES``, how often seen; ``shapes``, ``rounds``;
    ``beyond``: outcomes of late or repeated operations and forbidden ones, of which LOCO has none.
    """

    native: ClassVar[str] = "loco_litmus"
    rounds: int | None = None
    batch: int | None = None


@dataclass(frozen=True)
class LocoLock(Workload):
    """One lock, at node 0, under which every thread of every node counts a word up.

    The run fails when an increment was lost. Latency ``critical_section``, from one end to the
    next.

    Parameters
    ----------
    system
        LOCO's ticket lock, or a model of a test-and-set lock or of MPI's window locks.
    threads
        Threads of a node, or ranks.
    fence, handovers, backoff_ns, device_memory
        LOCO's ticket lock: what a release orders before itself; hand-overs to threads of one
        node in a row; pause per ticket before the next; whether its words are on the NIC.
    polling
        Who polls for completions: a ``thread`` of its own as in the paper, or the ``callers``.
    warmup_ns, iterations
        Time before measuring; measured turns per thread, at most.
    """

    native: ClassVar[str] = "loco_lock"
    system: Literal["loco", "test_and_set", "mpi_windows"] | None = None
    threads: int | None = None
    fence: Literal["pair", "thread", "global"] | None = None
    handovers: int | None = None
    backoff_ns: int | None = None
    device_memory: bool | None = None
    polling: Literal["thread", "callers"] | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


@dataclass(frozen=True)
class LocoPower(Workload):
    """The control loop of DC/DC converters: node 0 controls, every other node converts.

    Metrics of node 0, relative to the wanted voltage: ``start_peak``, the most in the first
    millisecond; of the second half of the run ``ripple``, most minus least, and ``deviation``, root
    mean square; and ``voltage/NS`` for each turn of the controller in ``trace_ns``. Of every node
    ``late_turns``: turns of its loop that began a period late.

    Parameters
    ----------
    period_us, converter_us
        Periods of the controller's loop and of the converters'.
    trace_ns
        For how long the voltage is a row.
    """

    native: ClassVar[str] = "loco_power"
    period_us: int | None = None
    converter_us: int | None = None
    trace_ns: int | None = None


@dataclass(frozen=True)
class LocoTransactions(Workload):
    """Transfers between two accounts drawn at random, under the locks of both.

    The run fails when the sum of all accounts has changed. Latency ``transaction``.

    Parameters
    ----------
    system
        LOCO's ticket locks and atomic_vars, or a model of MPI's windows.
    threads
        Threads of a node, or ranks.
    accounts
        Of all nodes together, 8 bytes each.
    locks_per_thread
        Locks, times all threads; or windows, of which every rank has one lock.
    merged
        MPI's windows without a registration each, to tell what that costs.
    polling
        Who polls for completions: a ``thread`` of its own as in the paper, or the ``callers``.
    warmup_ns, iterations
        Time before measuring; measured transfers per thread, at most.
    """

    native: ClassVar[str] = "loco_transactions"
    system: Literal["loco", "mpi_windows"] | None = None
    threads: int | None = None
    accounts: int | None = None
    locks_per_thread: int | None = None
    merged: bool | None = None
    polling: Literal["thread", "callers"] | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


@dataclass(frozen=True)
class LocoYcsb(Workload):
    """Lookups and changes of a key-value store, several in flight per thread (LOCO, figure 5).

    Latencies ``lookup``, ``update``, ``insert`` and ``remove``; metric ``index``: bytes of a
    node's index. The run fails when a lookup or update misses a key that must be there.

    Parameters
    ----------
    system
        LOCO's store, or a model of Sherman.
    reads, inserts, removes
        Fractions of the operations; what is left of 1 are updates.
    theta
        Exponent of Zipf's law, 0.99 in the paper; 0 for uniform keys.
    threads, window
        Threads of a node, and operations in flight of each.
    keys, fill, value_bytes
        Keys of all nodes together, the fraction of them that is there at first, and the bytes
        of a value.
    locks
        Ticket locks of the store, or locks of each node in the model of Sherman.
    fence
        Whether updates are placed, not only completed, before their lock is released.
    stored_index
        Whether the first keys are in the index's table, as in the paper, or computed, which
        spares each simulated node a table.
    tracker_pause_ns
        Longest pause of an idle tracker thread.
    polling
        Who polls for completions: a ``thread`` of its own as in the paper, or the ``callers``.
    warmup_ns, iterations
        Time before measuring; measured operations per thread, at most.
    """

    native: ClassVar[str] = "loco_ycsb"
    system: Literal["loco", "sherman"] | None = None
    reads: float | None = None
    inserts: float | None = None
    removes: float | None = None
    theta: float | None = None
    threads: int | None = None
    window: int | None = None
    keys: int | None = None
    fill: float | None = None
    value_bytes: int | None = None
    locks: int | None = None
    fence: bool | None = None
    stored_index: bool | None = None
    tracker_pause_ns: int | None = None
    polling: Literal["thread", "callers"] | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


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


class Ycsb(LocoYcsb):
    """`LocoYcsb` on a store that a script has named: with its keys and its fill.

    Each run makes the store anew on every node, loads it, and drives it natively.

    Parameters
    ----------
    store
        The store; its cluster is the one to run on.
    settings
        Fields of `LocoYcsb`.
    """

    def __init__(self, store: KvStore, **settings: Any) -> None:
        super().__init__(**{"keys": store.keys, "fill": store.fill, **settings})
