"""Workload classes of loco, written by ``python -m tests.generated.workload_classes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pyrdma._workload import DEFAULT, Workload

__all__ = [
    "LocoBarrier",
    "LocoLitmus",
    "LocoLock",
    "LocoPower",
    "LocoTransactions",
    "LocoYcsb",
]


@dataclass(frozen=True)
class LocoBarrier(Workload):
    """Every node waits at a LOCO barrier again and again (figure 1b): latency ``barrier``.

    Parameters
    ----------
    threads
        Threads of a node, or ranks (1 to 64, default 1).
    polling
        Poller of the completion queue: a thread of its own, or the callers (default callers).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        10,000).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "loco_barrier"
    threads: int = DEFAULT
    polling: Literal["thread", "callers"] = DEFAULT
    wait_timeout_ms: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class LocoLitmus(Workload):
    """The shapes of `Litmus` run through LOCO's objects: fenced writes, reads, atomic_vars.

    Metrics of node 0 (of 4 nodes): ``outcome|SHAPE|LEVEL|VALUES``, the number of times that an
    outcome was seen; ``shapes``; ``rounds``; ``beyond``, the number of late, repeated and forbidden
    outcomes. LOCO shows none of these.

    Parameters
    ----------
    rounds
        Rounds of each shape, at least (at least 1, default 200).
    batch
        Rounds between two meetings of the nodes (1 to 4,096, default 100).
    """

    native: ClassVar[str] = "loco_litmus"
    rounds: int = DEFAULT
    batch: int = DEFAULT


@dataclass(frozen=True)
class LocoLock(Workload):
    """Every thread of every node increments one word under one lock at node 0.

    The run fails when an increment was lost. Latency ``critical_section``: the time between the
    ends of two sections.

    Parameters
    ----------
    threads
        Threads of a node, or ranks (1 to 64, default 1).
    polling
        Poller of the completion queue: a thread of its own, or the callers (default callers).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        10,000).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    system
        Lock to measure: LOCO's ticket lock, or a model of a test-and-set lock or of MPI's window
        locks (default loco).
    fence
        Fence before a release; loco only (default pair).
    handovers
        Hand-overs of the lock to threads of one node in a row; loco only (0 to 1,048,576, default
        16).
    backoff_ns
        Pause per ticket before the caller's own; loco only (ns, at least 0, default 1,000).
    device_memory
        The lock's words are in the NIC's memory; loco only (default False).
    own_memory
        Access to protected data in the node's own memory: through the nic, as other nodes do
        (paper), or by the cpu (best); loco only (default preset).
    preset
        LOCO's protocol: the paper's steps, or with every switch on; loco only (default best).
    combined_request
        LOCO's locks: one doorbell asks for the ticket and now_serving; loco only (default preset).
    release_by_write
        LOCO's locks: a release writes now_serving instead of adding to it; loco only (default
        preset).
    unawaited_release
        LOCO's locks: a release returns before it has completed; loco only (default preset).
    unawaited_fence
        LOCO's locks: the queue pair, not a wait, gives the order of a pair fence; loco only
        (default preset).
    one_doorbell
        LOCO's locks: requests to one host share a doorbell, also writes with a release; loco only
        (default preset).
    """

    native: ClassVar[str] = "loco_lock"
    threads: int = DEFAULT
    polling: Literal["thread", "callers"] = DEFAULT
    wait_timeout_ms: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
    system: Literal["loco", "test_and_set", "mpi_windows"] = DEFAULT
    fence: Literal["pair", "thread", "global"] = DEFAULT
    handovers: int = DEFAULT
    backoff_ns: int = DEFAULT
    device_memory: bool = DEFAULT
    own_memory: Literal["preset", "nic", "cpu"] = DEFAULT
    preset: Literal["paper", "best"] = DEFAULT
    combined_request: Literal["preset", "on", "off"] = DEFAULT
    release_by_write: Literal["preset", "on", "off"] = DEFAULT
    unawaited_release: Literal["preset", "on", "off"] = DEFAULT
    unawaited_fence: Literal["preset", "on", "off"] = DEFAULT
    one_doorbell: Literal["preset", "on", "off"] = DEFAULT


@dataclass(frozen=True)
class LocoPower(Workload):
    """The control loop of DC/DC converters: node 0 controls, every other node converts.

    Node 0 records, relative to the wanted voltage: ``start_peak``, the maximum of the first
    millisecond; ``ripple``, the maximum minus the minimum of the second half; ``deviation``, the
    root mean square of the second half; ``voltage/NS``, the voltage at each iteration during
    ``trace_ns``. Every node records ``late_turns``, the iterations of its loop that began at least
    one period late.

    Parameters
    ----------
    period_us
        Period of the controller's loop (us, 1 to 10,000, default 40).
    converter_us
        Period of the converters' loops (us, 1 to 10,000, default 10).
    trace_ns
        Time during which the run records the voltage (ns, at least 0, default 2,000,000).
    """

    native: ClassVar[str] = "loco_power"
    period_us: int = DEFAULT
    converter_us: int = DEFAULT
    trace_ns: int = DEFAULT


@dataclass(frozen=True)
class LocoTransactions(Workload):
    """Threads transfer between two accounts drawn at random, under the locks of both.

    The run fails when the sum of all accounts has changed. Latency ``transaction``.

    Parameters
    ----------
    threads
        Threads of a node, or ranks (1 to 64, default 1).
    polling
        Poller of the completion queue: a thread of its own, or the callers (default callers).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        10,000).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    system
        LOCO's ticket locks and atomic_vars, or a model of MPI's windows (default loco).
    accounts
        Accounts of all nodes together, 8 bytes each (at least 2, default 1,000,000).
    locks_per_thread
        Locks for each thread; mpi_windows: windows, of which every rank has one lock (1 to
        1,048,576, default 341).
    merged
        Windows share one registration, which tells what one of its own costs; mpi_windows only
        (default False).
    own_memory
        Access to protected data in the node's own memory: through the nic, as other nodes do
        (paper), or by the cpu (best); loco only (default preset).
    preset
        LOCO's protocol: the paper's steps, or with every switch on; loco only (default best).
    combined_request
        LOCO's locks: one doorbell asks for the ticket and now_serving; loco only (default preset).
    release_by_write
        LOCO's locks: a release writes now_serving instead of adding to it; loco only (default
        preset).
    unawaited_release
        LOCO's locks: a release returns before it has completed; loco only (default preset).
    unawaited_fence
        LOCO's locks: the queue pair, not a wait, gives the order of a pair fence; loco only
        (default preset).
    one_doorbell
        LOCO's locks: requests to one host share a doorbell, also writes with a release; loco only
        (default preset).
    """

    native: ClassVar[str] = "loco_transactions"
    threads: int = DEFAULT
    polling: Literal["thread", "callers"] = DEFAULT
    wait_timeout_ms: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
    system: Literal["loco", "mpi_windows"] = DEFAULT
    accounts: int = DEFAULT
    locks_per_thread: int = DEFAULT
    merged: bool = DEFAULT
    own_memory: Literal["preset", "nic", "cpu"] = DEFAULT
    preset: Literal["paper", "best"] = DEFAULT
    combined_request: Literal["preset", "on", "off"] = DEFAULT
    release_by_write: Literal["preset", "on", "off"] = DEFAULT
    unawaited_release: Literal["preset", "on", "off"] = DEFAULT
    unawaited_fence: Literal["preset", "on", "off"] = DEFAULT
    one_doorbell: Literal["preset", "on", "off"] = DEFAULT


@dataclass(frozen=True)
class LocoYcsb(Workload):
    """Threads look up and change keys of a store, several operations in flight (figure 5).

    Latencies ``lookup``, ``update``, ``insert`` and ``remove``. Metrics: ``index``, bytes of a
    node's index; ``early_ops``, operations in the first half of the measured time, which tells
    whether the run was in a steady state. The run fails when a lookup or update misses a key that
    must be there.

    Parameters
    ----------
    threads
        Threads of a node, or ranks (1 to 64, default 1).
    polling
        Poller of the completion queue: a thread of its own, or the callers (default callers).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        10,000).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    system
        LOCO's store, or the model of Sherman (default loco).
    reads
        Fraction of lookups; the rest, after inserts and removes, are updates (0 to 1, default 1).
    inserts
        Fraction of insertions; loco only (0 to 1, default 0).
    removes
        Fraction of removals; loco only (0 to 1, default 0).
    theta
        Exponent of Zipf's law, 0.99 in the paper; 0: uniform keys (0 to 10, default 0).
    window
        Operations in flight per thread (1 to 65,536, default 3).
    keys
        Keys of all nodes together (at least 1, default 100,000).
    fill
        Fraction of the keys that are there at first; operations draw from these (0.01 to 1, default
        0.8).
    value_bytes
        Size of a value; loco only (B, 8 to 1,048,576, default 8).
    locks
        Ticket locks of the store; sherman: locks of each node (1 to 16,777,216, default 4,096).
    fence
        Updates are placed, not only completed, before their lock is released (default True).
    local_queues
        A node's threads queue for a lock locally and hand it over; otherwise each thread tries for
        it over the network; sherman only (default True).
    whole_leaf
        An operation reads the whole leaf of its key; otherwise only the key's entry; sherman only
        (default True).
    combined_unlock
        An update posts its unlock with its write; otherwise when the write has ended; sherman only
        (default True).
    grant
        Order in which nodes get a lock: of their successful tries, or of their tickets; sherman
        only (default test_and_set).
    stored_index
        The index's table holds the first keys too (paper); otherwise the index computes their
        places, which saves each simulated node a table; loco only (default True).
    history
        Record all operations; pyrdma.check says whether they are linearizable (default False).
    tracker_pause_ns
        Longest pause of an idle tracker thread; loco only (ns, at least 1,000, default 100,000).
    preset
        LOCO's protocol: the paper's steps, or with every switch on; loco only (default best).
    combined_request
        LOCO's locks: one doorbell asks for the ticket and now_serving; loco only (default preset).
    release_by_write
        LOCO's locks: a release writes now_serving instead of adding to it; loco only (default
        preset).
    unawaited_release
        LOCO's locks: a release returns before it has completed; loco only (default preset).
    unawaited_fence
        LOCO's locks: the queue pair, not a wait, gives the order of a pair fence; loco only
        (default preset).
    one_doorbell
        LOCO's locks: requests to one host share a doorbell, also writes with a release; loco only
        (default preset).
    """

    native: ClassVar[str] = "loco_ycsb"
    threads: int = DEFAULT
    polling: Literal["thread", "callers"] = DEFAULT
    wait_timeout_ms: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
    system: Literal["loco", "sherman"] = DEFAULT
    reads: float = DEFAULT
    inserts: float = DEFAULT
    removes: float = DEFAULT
    theta: float = DEFAULT
    window: int = DEFAULT
    keys: int = DEFAULT
    fill: float = DEFAULT
    value_bytes: int = DEFAULT
    locks: int = DEFAULT
    fence: bool = DEFAULT
    local_queues: bool = DEFAULT
    whole_leaf: bool = DEFAULT
    combined_unlock: bool = DEFAULT
    grant: Literal["test_and_set", "ticket"] = DEFAULT
    stored_index: bool = DEFAULT
    history: bool = DEFAULT
    tracker_pause_ns: int = DEFAULT
    preset: Literal["paper", "best"] = DEFAULT
    combined_request: Literal["preset", "on", "off"] = DEFAULT
    release_by_write: Literal["preset", "on", "off"] = DEFAULT
    unawaited_release: Literal["preset", "on", "off"] = DEFAULT
    unawaited_fence: Literal["preset", "on", "off"] = DEFAULT
    one_doorbell: Literal["preset", "on", "off"] = DEFAULT
