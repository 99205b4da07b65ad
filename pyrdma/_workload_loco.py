"""The workloads of LOCO's channels; see `pyrdma.workload`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ._workload import Workload

if TYPE_CHECKING:
    from .loco import KvStore

__all__ = [
    "LocoBarrier",
    "LocoLitmus",
    "LocoLock",
    "LocoPower",
    "LocoTransactions",
    "LocoYcsb",
    "Ycsb",
]


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
    own_memory
        Whether the word's host reads and writes it through its ``nic``, like everybody else
        (paper), or by its ``cpu`` (best); LOCO only.
    preset
        LOCO's protocol: as in the ``paper``, or the ``best``, with every switch below on.
    combined_request, release_by_write, unawaited_release, unawaited_fence, one_doorbell
        Switches of LOCO's locks: now_serving is read with the ticket; a release writes it, instead
        of adding to it; a release is not waited for; a pair fence leaves the order to the queue
        pair; requests to one host leave with one doorbell.
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
    own_memory: Literal["preset", "nic", "cpu"] | None = None
    preset: Literal["paper", "best"] | None = None
    combined_request: Literal["preset", "on", "off"] | None = None
    release_by_write: Literal["preset", "on", "off"] | None = None
    unawaited_release: Literal["preset", "on", "off"] | None = None
    unawaited_fence: Literal["preset", "on", "off"] | None = None
    one_doorbell: Literal["preset", "on", "off"] | None = None
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
    own_memory
        Whether accounts of this node are read and written through its ``nic``, like those of other
        nodes (paper), or by its ``cpu`` (best); LOCO only.
    preset
        LOCO's protocol: as in the ``paper``, or the ``best``, with every switch below on.
    combined_request, release_by_write, unawaited_release, unawaited_fence, one_doorbell
        Switches of LOCO's locks: now_serving is read with the ticket; a release writes it, instead
        of adding to it; a release is not waited for; a pair fence leaves the order to the queue
        pair; requests to one host leave with one doorbell.
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
    own_memory: Literal["preset", "nic", "cpu"] | None = None
    preset: Literal["paper", "best"] | None = None
    combined_request: Literal["preset", "on", "off"] | None = None
    release_by_write: Literal["preset", "on", "off"] | None = None
    unawaited_release: Literal["preset", "on", "off"] | None = None
    unawaited_fence: Literal["preset", "on", "off"] | None = None
    one_doorbell: Literal["preset", "on", "off"] | None = None
    polling: Literal["thread", "callers"] | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


@dataclass(frozen=True)
class LocoYcsb(Workload):
    """Lookups and changes of a key-value store, several in flight per thread (LOCO, figure 5).

    Latencies ``lookup``, ``update``, ``insert`` and ``remove``; metrics ``index``: bytes of a
    node's index; ``early_ops``: operations in the first half of the measured time, to tell whether
    it was a steady state. The run fails when a lookup or update misses a key that must be there.

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
    local_queues
        Model of Sherman: whether a node's threads queue for a lock among themselves, and hand it
        over, or each tries for it over the network.
    stored_index
        Whether the first keys are in the index's table, as in the paper, or computed, which
        spares each simulated node a table.
    tracker_pause_ns
        Longest pause of an idle tracker thread.
    preset
        LOCO's protocol: as in the ``paper``, or the ``best``, with every switch below on.
    combined_request, release_by_write, unawaited_release, unawaited_fence, one_doorbell
        Switches of LOCO's locks: now_serving is read with the ticket; a release writes it, instead
        of adding to it; a release is not waited for; a pair fence leaves the order to the queue
        pair; requests to one host leave with one doorbell.
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
    local_queues: bool | None = None
    stored_index: bool | None = None
    tracker_pause_ns: int | None = None
    preset: Literal["paper", "best"] | None = None
    combined_request: Literal["preset", "on", "off"] | None = None
    release_by_write: Literal["preset", "on", "off"] | None = None
    unawaited_release: Literal["preset", "on", "off"] | None = None
    unawaited_fence: Literal["preset", "on", "off"] | None = None
    one_doorbell: Literal["preset", "on", "off"] | None = None
    polling: Literal["thread", "callers"] | None = None
    warmup_ns: int | None = None
    iterations: int | None = None


class Ycsb(LocoYcsb):
    """`LocoYcsb` on a store that a script has named: with its keys, its fill and its preset.

    Each run makes the store anew on every node, loads it, and drives it natively.

    Parameters
    ----------
    store
        The store; its cluster is the one to run on.
    settings
        Fields of `LocoYcsb`.
    """

    def __init__(self, store: KvStore, **settings: Any) -> None:
        super().__init__(
            **{"keys": store.keys, "fill": store.fill, "preset": store.preset, **settings}
        )
