"""Workload classes of krcore, written by ``python -m tests.generated.workload_classes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pyrdma._workload import DEFAULT, Workload

__all__ = [
    "KrcoreBatch",
    "KrcoreConnect",
    "KrcoreEcho",
    "KrcoreLite",
    "KrcoreLiteConnect",
    "KrcoreMesh",
    "KrcoreOneSided",
    "KrcoreRace",
    "KrcoreRing",
    "KrcoreSpike",
    "KrcoreTransfer",
]


@dataclass(frozen=True)
class KrcoreBatch(Workload):
    """A client reads from many nodes at once (KRCore, section 5.2, figure 14a).

    Node 0 is the client. Latency: ``batch``. Metrics: ``polled_queues``, completion queues that a
    round of polls visits.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    transport
        Of the physical queue pairs (default dc).
    requests
        Of a batch, one for each queue pair (1 to 4,096, default 64).
    size
        Of a request (bytes, 1 to 1,048,576, default 8).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_batch"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    transport: Literal["dc", "rc"] = DEFAULT
    requests: int = DEFAULT
    size: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreConnect(Workload):
    """Clients connect virtual queue pairs to one server (KRCore, section 5.1).

    Node 0 is the server and a meta server. Latency: ``connect``. Metrics of clients: ``ops``,
    ``rate``. Metrics of nodes: ``meta_reads``, ``metadata_requests``, and what the service has
    counted.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    op
        Connects, or pops of an idle queue (default connect).
    clients
        Connecting threads, spread over all nodes except node 0, the server (1 to 65,536, default
        1).
    metadata
        READs, or RPCs (default meta_server).
    cached
        Keep the metadata of the server; else each connect asks a meta server (default False).
    queues
        Created in a row, then connected one by one, then destroyed (1 to 4,096, default 1).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_connect"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    op: Literal["connect", "pop"] = DEFAULT
    clients: int = DEFAULT
    metadata: Literal["meta_server", "rpc"] = DEFAULT
    cached: bool = DEFAULT
    queues: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreEcho(Workload):
    """Clients send messages that a server sends back (KRCore, section 5.2).

    Node 0 is the server. Latency: ``echo``, of all messages of a batch. Metrics of clients:
    ``ops``, ``rate``, in messages.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    system
        Virtual queue pairs, or those of the device (default krcore).
    transport
        Of the physical queue pairs (default dc).
    size
        Of a message (bytes, 1 to 67,108,864, default 8).
    batch
        Messages that a client sends before it waits for all (1 to 64, default 1).
    clients
        Threads, spread over all nodes except node 0, the server (1 to 65,536, default 1).
    server_threads
        Of node 0 (1 to 256, default 24).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_echo"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    system: Literal["krcore", "verbs"] = DEFAULT
    transport: Literal["dc", "rc"] = DEFAULT
    size: int = DEFAULT
    batch: int = DEFAULT
    clients: int = DEFAULT
    server_threads: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreLite(Workload):
    """Threads of one node read other nodes' memory through LITE (KRCore, section 5.2).

    Latency: ``read`` or ``write``, of all operations of a window. Metrics of threads: ``ops``,
    ``rate``, ``failed_threads``. Metrics of node 0: ``connections``, ``failed_queue_pairs`` and
    ``first_failure``, which is since the common begin of the threads.

    Parameters
    ----------
    op
        The operation (default read).
    threads
        Of node 0; the other nodes have the memory (1 to 256, default 1).
    mode
        A call for each operation, or many under way (default sync).
    window
        Async: operations that a thread posts, each in a call, before it waits for all in one call
        (1 to 1,048,576, default 1,200).
    connections
        Of the pool, rounded up to as many for each of the other nodes (1 to 65,536, default 32).
    size
        Of an operation (bytes, 1 to 67,108,864, default 64).
    region_bytes
        Of a node, with random addresses (bytes, at least 64, default 16,777,216).
    send_entries
        Of a queue pair (1 to 32,768, default 258).
    completions
        Of its completion queue (1 to 32,768, default 257).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_lite"
    op: Literal["read", "write"] = DEFAULT
    threads: int = DEFAULT
    mode: Literal["sync", "async"] = DEFAULT
    window: int = DEFAULT
    connections: int = DEFAULT
    size: int = DEFAULT
    region_bytes: int = DEFAULT
    send_entries: int = DEFAULT
    completions: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreLiteConnect(Workload):
    """Clients connect to one server through LITE, without a cache (KRCore, section 5.1).

    Node 0 is the server. Latency: ``connect``. Metrics of clients: ``ops``, ``rate``. Metrics of
    nodes: ``connections``, ``memory`` by the paper's count.

    Parameters
    ----------
    clients
        Connecting threads, spread over the nodes but the server and a manager (1 to 65,536, default
        1).
    control
        The two nodes by datagrams, or a manager, one connection after another (default decentral).
    cached
        The connection is cached: the system call alone (default False).
    manager_turn_ns
        Central: time of the manager for a connection, beside the server's (ns, at least 0, default
        20,000,000).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_lite_connect"
    clients: int = DEFAULT
    control: Literal["decentral", "central"] = DEFAULT
    cached: bool = DEFAULT
    manager_turn_ns: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreMesh(Workload):
    """Workers on all nodes connect to each other (KRCore, section 5.1).

    Latency: ``worker``, from the common begin until a worker has connected all its queue pairs.
    Metrics: ``finished`` of each worker; ``meta_reads`` of a node.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    workers
        Spread over all nodes (2 to 4,096, default 2).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_mesh"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    workers: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreOneSided(Workload):
    """Clients read or write through virtual queue pairs (KRCore, section 5.2).

    The first `servers` nodes have the memory. Latencies: ``read`` or ``write``, of a list. Metrics
    of clients: ``ops``, ``rate``, in requests.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    op
        The operation (default read).
    transport
        Of the physical queue pairs (default dc).
    size
        Of a request (bytes, 1 to 67,108,864, default 8).
    batch
        Requests of a list, the last one with a signal; 1: a call posts one and waits for it (1 to
        4,096, default 1).
    clients
        Threads, spread over the nodes that are no servers (1 to 65,536, default 1).
    servers
        The first nodes; each request goes to a random one (1 to 4,096, default 1).
    region_bytes
        Of a server, with random addresses (bytes, at least 64, default 16,777,216).
    miss
        Forget the checked regions before each request (default False).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_one_sided"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    op: Literal["read", "write"] = DEFAULT
    transport: Literal["dc", "rc"] = DEFAULT
    size: int = DEFAULT
    batch: int = DEFAULT
    clients: int = DEFAULT
    servers: int = DEFAULT
    region_bytes: int = DEFAULT
    miss: bool = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreRace(Workload):
    """Clients use a RACE table on storage nodes (KRCore, section 5.3.1).

    The first `storage_nodes` nodes have the table. Latencies: ``get``, ``update``. Metrics of
    clients: ``ops``, ``rate``, ``missing`` keys.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    system
        Queue pairs of the service or of the device, or LITE's calls (default krcore).
    transport
        Of the service's physical queue pairs (default dc).
    storage_nodes
        The first nodes, which have the table (1 to 16, default 1).
    keys
        In the table before the load (1 to 100,000,000, default 10,000).
    value_bytes
        Of a value (bytes, 1 to 1,024, default 64).
    window
        Operations under way of a client (1 to 256, default 12).
    clients
        Threads, spread over the nodes that have no table (1 to 65,536, default 1).
    reads
        Of lookups; all else are updates (share, 0 to 1, default 1).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_race"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    system: Literal["krcore", "verbs", "lite"] = DEFAULT
    transport: Literal["dc", "rc"] = DEFAULT
    storage_nodes: int = DEFAULT
    keys: int = DEFAULT
    value_bytes: int = DEFAULT
    window: int = DEFAULT
    clients: int = DEFAULT
    reads: float = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreRing(Workload):
    """An application behind a daemon's ring reads another node's memory in batches.

    Node 0 has the memory, node 1 the daemon and the application. Not on simulated nodes. Latency:
    ``call``. Metrics: ``ops``, ``rate``, in slots.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    op
        READs, or calls that do nothing (default read).
    batch
        Slots of a call (1 to 256, default 64).
    size
        Of a READ (bytes, 1 to 65,536, default 8).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_ring"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    op: Literal["read", "nothing"] = DEFAULT
    batch: int = DEFAULT
    size: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreSpike(Workload):
    """Processes start, connect to a RACE table and look keys up (KRCore, section 5.3.1).

    Metrics of workers: ``ready`` after the spike; ``burst_ns/MS``, the time of the burst that began
    MS milliseconds after the spike. Latency: ``get``.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    system
        Queue pairs of the service or of the device, or LITE's calls (default krcore).
    transport
        Of the service's physical queue pairs (default dc).
    storage_nodes
        The first nodes, which have the table (1 to 16, default 1).
    keys
        In the table before the load (1 to 100,000,000, default 10,000).
    value_bytes
        Of a value (bytes, 1 to 1,024, default 64).
    window
        Operations under way of a client (1 to 256, default 12).
    processes
        That start at the spike, spread over the computing nodes (1 to 4,096, default 180).
    sampled_rc
        Make reliable connections to frequent nodes (default True).
    burst
        Lookups of a burst of a worker (1 to 1,000,000, default 48).
    interval_ms
        From burst to burst (ms, 1 to 1,000,000, default 50).
    end_ms
        After the spike (ms, 1 to 1,000,000, default 1,000).
    frequent_requests
        Of a pool to a node in a sample, which make the node a frequent one (at least 1, default
        50).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_spike"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    system: Literal["krcore", "verbs", "lite"] = DEFAULT
    transport: Literal["dc", "rc"] = DEFAULT
    storage_nodes: int = DEFAULT
    keys: int = DEFAULT
    value_bytes: int = DEFAULT
    window: int = DEFAULT
    processes: int = DEFAULT
    sampled_rc: bool = DEFAULT
    burst: int = DEFAULT
    interval_ms: int = DEFAULT
    end_ms: int = DEFAULT
    frequent_requests: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class KrcoreTransfer(Workload):
    """A function hands a payload to one that starts on another node (KRCore, section 5.3.2).

    Node 0 has the first function. Latencies: ``sender``, until the payload can be read;
    ``receiver``, from the start of its function until it has the payload.

    Parameters
    ----------
    preset
        The paper's steps, or what the authors' public code does (default paper).
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2 (0 to 256, default 0).
    dc_queue_pairs
        Dynamic queue pairs of a pool (1 to 256, default 2).
    rc_queue_pairs
        Reliable queue pairs of a pool, at most (0 to 4,096, default 64).
    virtual_queue_pairs
        Of a node, at most (1 to 65,535, default 16,384).
    meta_servers
        The first nodes, which hold the metadata of all (1 to 64, default 1).
    check_regions
        Check remote regions against ValidMR (default True).
    message_bytes
        Of payload in a buffer of the service (bytes, 64 to 16,777,216, default 16,384).
    zero_copy_above
        Of payload that the receiver reads itself (bytes, 0 to 16,777,216, default 16,384).
    arena_bytes
        Registered memory of a node's applications (bytes, at least 4,096, default 67,108,864).
    system
        Virtual queue pairs, or those of the device (default krcore).
    payload
        That is handed over (bytes, 8 to 1,048,576, default 1,024).
    rounds
        Pairs of functions, one after another (1 to 10,000, default 8).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "krcore_transfer"
    preset: Literal["paper", "public"] = DEFAULT
    cores: int = DEFAULT
    dc_queue_pairs: int = DEFAULT
    rc_queue_pairs: int = DEFAULT
    virtual_queue_pairs: int = DEFAULT
    meta_servers: int = DEFAULT
    check_regions: bool = DEFAULT
    message_bytes: int = DEFAULT
    zero_copy_above: int = DEFAULT
    arena_bytes: int = DEFAULT
    system: Literal["krcore", "verbs"] = DEFAULT
    payload: int = DEFAULT
    rounds: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
