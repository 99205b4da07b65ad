"""Workload classes of tailwind, written by ``python -m tests.generated.workload_classes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pyrdma._workload import DEFAULT, Workload

__all__ = [
    "TailwindStore",
]


@dataclass(frozen=True)
class TailwindStore(Workload):
    """Clients read and write objects of a store that replicates its log (Tailwind, section 4).

    The first `servers` nodes are servers, the next one is the coordinator, all others are clients.
    Latencies: ``put`` and ``get`` at the clients. Metrics of clients: ``ops``, ``rate``,
    ``attempts``. Metrics of servers, from the first operation on: ``dispatch_cores`` and
    ``worker_cores`` that were busy, ``replication_cores`` of workers that waited for backups,
    ``most_workers`` at once; ``appends``, ``replication_writes`` by RDMA, ``replication_rpcs`` with
    data, ``control_rpcs``, ``replicated_bytes``, ``connections``, ``log_connections`` of primaries
    that write here, ``log_used``, ``backup_problems``: damaged replicas and what the disk cannot
    take.

    Parameters
    ----------
    servers
        The first nodes; the next one is the coordinator, and all others are clients (1 to 1,000,
        default 4).
    replication
        How a primary brings its log to its backups: RPCs, or RDMA writes (default tailwind).
    replicas
        Of each segment, beside the primary's memory; 0: none (0 to 16, default 3).
    durability
        When a write counts as being at a backup: completed, or in memory by a read behind it
        (default completion).
    placement
        Which servers a primary asks for replicas (default random).
    workers
        Threads of a server beside its dispatch thread; 0: that one does all work (0 to 64, default
        7).
    group_commit
        A server without workers writes to its backups once for all requests that it has, 64 at
        most; not in the paper (default False).
    log_bytes
        Memory of a server's log (bytes, at least 1,048,576, default 268,435,456).
    segment_bytes
        Of a segment, and of a buffer at a backup (bytes, 65,536 to 16,777,215, default 8,388,608).
    buffers
        Of a backup (2 to 65,536, default 32).
    keys
        Objects before the load begins, spread over the servers (at least 1, default 100,000).
    key_bytes
        Of a key (bytes, 8 to 65,535, default 30).
    value_bytes
        Of a value (bytes, 8 to 1,048,576, default 100).
    dispatch_ns
        Work of a thread for each message that it sends or takes, beyond this code's own (ns, 0 to
        1,000,000, default 0).
    write_ns
        Work of a worker for each update, beyond this code's own (ns, 0 to 1,000,000, default 0).
    lease_ms
        For which a server may serve without the coordinator; one that has not answered for about a
        third of it, or for 0.3 s if that is longer, is taken for dead (ms, 1 to 1,000,000, default
        60,000).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        60,000).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    threads
        Client threads of a node (1 to 64, default 1).
    in_flight
        Operations of a client thread under way (1 to 1,024, default 1).
    reads
        Fraction of reads; the rest are writes (0 to 1, default 0).
    zipf
        Skew of the keys (YCSB: 0.99); 0: uniform (0 to 2, default 0.99).
    primaries
        Servers that have the table; 0: all (0 to 1,000, default 0).
    preload
        Whether backups get the objects that are there before the load; without them a crash loses
        these objects (default replicated).
    history
        Record all operations; pyrdma.check says whether they are linearizable (default False).
    """

    native: ClassVar[str] = "tailwind_store"
    servers: int = DEFAULT
    replication: Literal["ramcloud", "tailwind"] = DEFAULT
    replicas: int = DEFAULT
    durability: Literal["completion", "flush"] = DEFAULT
    placement: Literal["random", "best_of_five", "groups"] = DEFAULT
    workers: int = DEFAULT
    group_commit: bool = DEFAULT
    log_bytes: int = DEFAULT
    segment_bytes: int = DEFAULT
    buffers: int = DEFAULT
    keys: int = DEFAULT
    key_bytes: int = DEFAULT
    value_bytes: int = DEFAULT
    dispatch_ns: int = DEFAULT
    write_ns: int = DEFAULT
    lease_ms: int = DEFAULT
    wait_timeout_ms: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
    threads: int = DEFAULT
    in_flight: int = DEFAULT
    reads: float = DEFAULT
    zipf: float = DEFAULT
    primaries: int = DEFAULT
    preload: Literal["replicated", "local"] = DEFAULT
    history: bool = DEFAULT
