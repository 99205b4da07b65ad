"""Workload classes of erpc, written by ``python -m tests.generated.workload_classes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pyrdma._workload import DEFAULT, Workload

__all__ = [
    "ErpcBaseline",
    "ErpcLoad",
    "ErpcRaft",
    "ErpcStore",
]


@dataclass(frozen=True)
class ErpcBaseline(Workload):
    """Threads send small requests over an RPC system that eRPC is compared with (section 6.2).

    FaSST-style RPCs have one packet and neither recover losses nor control congestion. RPCs in the
    style of FaRM write requests into rings of the receiver. Latency ``rpc``.

    Parameters
    ----------
    system
        RPCs to measure: in the style of FaSST (datagrams, no loss, no congestion control), or of
        FaRM (rings written by RDMA) (default fasst).
    threads
        Threads of a node (1 to 64, default 1).
    request
        Bytes of a request (B, 8 to 65,536, default 32).
    response
        Bytes of a response (B, 8 to 65,536, default 32).
    batch
        Requests that a thread sends at once (1 to 4,096, default 3).
    in_flight
        Requests of a thread without a response (1 to 4,096, default 60).
    ring_bytes
        Bytes of a ring, a power of two; farm_ring only (B, 1,024 to 67,108,864, default 16,384).
    wait_timeout_ms
        Time that a thread waits for its last responses before it counts them as lost (ms, at least
        1, default 10,000).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    """

    native: ClassVar[str] = "erpc_baseline"
    system: Literal["fasst", "farm_ring"] = DEFAULT
    threads: int = DEFAULT
    request: int = DEFAULT
    response: int = DEFAULT
    batch: int = DEFAULT
    in_flight: int = DEFAULT
    ring_bytes: int = DEFAULT
    wait_timeout_ms: int = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT


@dataclass(frozen=True)
class ErpcLoad(Workload):
    """Threads send requests in batches and keep several under way (eRPC, section 6).

    Every response is compared with its request. Latencies: ``rpc``, from the call to the
    continuation; ``background``, of the background thread; ``rtt``, of packets, with `record_rtt`.
    Metrics of each thread: ``packets_sent``, ``packets_received``, ``doorbells``,
    ``retransmissions``, ``rate_updates``, ``paced_packets``, ``handled`` requests,
    ``session_bytes`` of a session at both ends. A node that sends no requests adds
    ``served_bandwidth``: its packets times the data of a full packet, for long requests.

    Parameters
    ----------
    threads
        Threads of a node, each with an endpoint (1 to 64, default 1).
    preset
        ERPC's protocol: the paper's, that with the constants of the public program, or with every
        improvement on (default best).
    congestion_control
        Rate control of a session: by round-trip times (timely), by the marks of switches (dcqcn),
        or none (default preset).
    credits
        Packets of a session under way (1 to 4,096, default 32).
    slots
        Requests of a session under way; a power of two (1 to 64, default 8).
    packet_bytes
        Bytes of a packet; 0: as many as the device's datagrams have (bytes, 0 to 4,096, default 0).
    receive_entries
        Packets that may wait at an endpoint; 0: the credits of all its sessions (0 to 1,048,576,
        default 0).
    max_message
        The longest message; 0: 8 MiB. A shorter one allows shorter packets (bytes, 0 to 8,388,608,
        default 0).
    link_gbps
        The most that a session sends; 0: the device's link (Gbit/s, 0 to 10,000, default 0).
    retransmission_timeout_ns
        Time without an answer after which packets are sent again (ns, at least 1,000, default
        5,000,000).
    failure_timeout_ns
        Silence after which a node counts as dead (ns, at least 10,000, default 500,000,000).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        60,000).
    batched_timestamps
        One reading of the clock per batch (section 5.2.2) (default preset).
    timely_bypass
        No new rate while a session is uncongested (section 5.2.2) (default preset).
    rate_limiter_bypass
        No wait in the wheel while a session is uncongested (section 5.2.2) (default preset).
    multi_packet_receives
        One receive for many packets, where the NIC can (section 4.1.1) (default preset).
    preallocated_responses
        A response buffer in each slot of a server (section 4.3) (default preset).
    zero_copy_receive
        Handlers read the NIC's buffer (section 4.2.3) (default preset).
    request_copies
        The server copies a long request together; off measures the copies (section 6.4) (default
        preset).
    growing_timeouts
        The retransmission timeout doubles after each eight copies without an answer; not in the
        paper (default preset).
    adaptive_timeout
        The retransmission timeout follows the round trips; not in the paper (default preset).
    unpaced_without_link
        No rate control over a device without a link, such as shared memory; not in the paper
        (default preset).
    checksums
        A checksum in each packet; not in the paper (default preset).
    overcommit
        More credits of all sessions than receives of the endpoint (default preset).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    pattern
        Who sends to whom: every thread to all threads of the other nodes, every thread to its like
        on the other nodes (columns), even nodes to the next odd one (pairs), or all nodes to node 0
        (incast) (default all).
    request
        Length of a request (bytes, 0 to 8,388,608, default 32).
    response
        Length of a response (bytes, 0 to 8,388,608, default 32).
    batch
        Requests that a thread sends at once (1 to 4,096, default 1).
    in_flight
        Requests of a thread under way (1 to 65,536, default 1).
    sessions
        Sessions of a thread to each thread that it sends to (1 to 32,768, default 1).
    service_ns
        Time that a handler computes (ns, at least 0, default 0).
    workers
        Worker threads of each endpoint that run the handlers; 0: the dispatch thread runs them (0
        to 64, default 0).
    background
        Length of the requests and responses of one more thread on each node but node 0, one at a
        time, to a random one of these nodes; 0: no such thread (bytes, 0 to 8,388,608, default 0).
    record_rtt
        Record the round-trip time of each packet (default False).
    """

    native: ClassVar[str] = "erpc_load"
    threads: int = DEFAULT
    preset: Literal["paper", "public", "best"] = DEFAULT
    congestion_control: Literal["preset", "none", "timely", "dcqcn"] = DEFAULT
    credits: int = DEFAULT
    slots: int = DEFAULT
    packet_bytes: int = DEFAULT
    receive_entries: int = DEFAULT
    max_message: int = DEFAULT
    link_gbps: float = DEFAULT
    retransmission_timeout_ns: int = DEFAULT
    failure_timeout_ns: int = DEFAULT
    wait_timeout_ms: int = DEFAULT
    batched_timestamps: Literal["preset", "on", "off"] = DEFAULT
    timely_bypass: Literal["preset", "on", "off"] = DEFAULT
    rate_limiter_bypass: Literal["preset", "on", "off"] = DEFAULT
    multi_packet_receives: Literal["preset", "on", "off"] = DEFAULT
    preallocated_responses: Literal["preset", "on", "off"] = DEFAULT
    zero_copy_receive: Literal["preset", "on", "off"] = DEFAULT
    request_copies: Literal["preset", "on", "off"] = DEFAULT
    growing_timeouts: Literal["preset", "on", "off"] = DEFAULT
    adaptive_timeout: Literal["preset", "on", "off"] = DEFAULT
    unpaced_without_link: Literal["preset", "on", "off"] = DEFAULT
    checksums: Literal["preset", "on", "off"] = DEFAULT
    overcommit: Literal["preset", "on", "off"] = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
    pattern: Literal["all", "columns", "pairs", "incast"] = DEFAULT
    request: int = DEFAULT
    response: int = DEFAULT
    batch: int = DEFAULT
    in_flight: int = DEFAULT
    sessions: int = DEFAULT
    service_ns: int = DEFAULT
    workers: int = DEFAULT
    background: int = DEFAULT
    record_rtt: bool = DEFAULT


@dataclass(frozen=True)
class ErpcRaft(Workload):
    """Clients put and get keys of a store that Raft replicates (eRPC, section 7.1).

    The first `replicas` nodes are members of the group, all others are clients. Latencies: ``put``
    and ``get`` at the clients, ``commit`` at the leader, from the arrival of a command until it is
    applied. Metrics of clients: ``tries``. Metrics of members: ``entries`` of the log,
    ``elections_won``, ``raft_messages``, ``raft_not_sent``, ``retransmissions``. A member that is
    killed and started again goes on from its disk. One that has no disk, or has lost it, must be
    removed from the group and added again, by ``Member::remove``, ``add`` and ``assign`` of native
    code. Needs Debian's libraft2.

    Parameters
    ----------
    threads
        Threads of a node, each with an endpoint (1 to 64, default 1).
    preset
        ERPC's protocol: the paper's, that with the constants of the public program, or with every
        improvement on (default best).
    congestion_control
        Rate control of a session: by round-trip times (timely), by the marks of switches (dcqcn),
        or none (default preset).
    credits
        Packets of a session under way (1 to 4,096, default 32).
    slots
        Requests of a session under way; a power of two (1 to 64, default 8).
    packet_bytes
        Bytes of a packet; 0: as many as the device's datagrams have (bytes, 0 to 4,096, default 0).
    receive_entries
        Packets that may wait at an endpoint; 0: the credits of all its sessions (0 to 1,048,576,
        default 0).
    max_message
        The longest message; 0: 8 MiB. A shorter one allows shorter packets (bytes, 0 to 8,388,608,
        default 0).
    link_gbps
        The most that a session sends; 0: the device's link (Gbit/s, 0 to 10,000, default 0).
    retransmission_timeout_ns
        Time without an answer after which packets are sent again (ns, at least 1,000, default
        5,000,000).
    failure_timeout_ns
        Silence after which a node counts as dead (ns, at least 10,000, default 500,000,000).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        60,000).
    batched_timestamps
        One reading of the clock per batch (section 5.2.2) (default preset).
    timely_bypass
        No new rate while a session is uncongested (section 5.2.2) (default preset).
    rate_limiter_bypass
        No wait in the wheel while a session is uncongested (section 5.2.2) (default preset).
    multi_packet_receives
        One receive for many packets, where the NIC can (section 4.1.1) (default preset).
    preallocated_responses
        A response buffer in each slot of a server (section 4.3) (default preset).
    zero_copy_receive
        Handlers read the NIC's buffer (section 4.2.3) (default preset).
    request_copies
        The server copies a long request together; off measures the copies (section 6.4) (default
        preset).
    growing_timeouts
        The retransmission timeout doubles after each eight copies without an answer; not in the
        paper (default preset).
    adaptive_timeout
        The retransmission timeout follows the round trips; not in the paper (default preset).
    unpaced_without_link
        No rate control over a device without a link, such as shared memory; not in the paper
        (default preset).
    checksums
        A checksum in each packet; not in the paper (default preset).
    overcommit
        More credits of all sessions than receives of the endpoint (default preset).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    replicas
        Members of the group: the first nodes, with one thread each; all others are clients (1 to
        15, default 3).
    reads
        Fraction of gets; the rest are puts (0 to 1, default 0).
    keys
        Keys of 16 bytes, drawn uniformly; absent at first (at least 1, default 1,000,000).
    value_bytes
        Length of a value; a multiple of 8 (bytes, 8 to 64, default 64).
    in_flight
        Operations of a client thread under way (1 to 1,024, default 1).
    durability
        Where members keep term, vote and log; with memory, a member that crashed is lost: started
        again, it takes no part (default memory).
    snapshot_entries
        Entries of the log between two snapshots (at least 1, default 1,000,000).
    election_timeout_ns
        Silence of the leader after which a member seeks election: one to two times this (ns, at
        least 1,000,000, default 100,000,000).
    heartbeat_ns
        Time between two signs of life of a leader (ns, at least 100,000, default 10,000,000).
    try_timeout_ns
        Time without an answer after which a client tries another member (ns, at least 10,000,
        default 200,000,000).
    pause_ns
        Wait of a client that knows no leader (ns, at least 1,000, default 20,000,000).
    history
        Record all operations; pyrdma.check says whether they are linearizable (default False).
    """

    native: ClassVar[str] = "erpc_raft"
    survives: ClassVar[bool] = True
    threads: int = DEFAULT
    preset: Literal["paper", "public", "best"] = DEFAULT
    congestion_control: Literal["preset", "none", "timely", "dcqcn"] = DEFAULT
    credits: int = DEFAULT
    slots: int = DEFAULT
    packet_bytes: int = DEFAULT
    receive_entries: int = DEFAULT
    max_message: int = DEFAULT
    link_gbps: float = DEFAULT
    retransmission_timeout_ns: int = DEFAULT
    failure_timeout_ns: int = DEFAULT
    wait_timeout_ms: int = DEFAULT
    batched_timestamps: Literal["preset", "on", "off"] = DEFAULT
    timely_bypass: Literal["preset", "on", "off"] = DEFAULT
    rate_limiter_bypass: Literal["preset", "on", "off"] = DEFAULT
    multi_packet_receives: Literal["preset", "on", "off"] = DEFAULT
    preallocated_responses: Literal["preset", "on", "off"] = DEFAULT
    zero_copy_receive: Literal["preset", "on", "off"] = DEFAULT
    request_copies: Literal["preset", "on", "off"] = DEFAULT
    growing_timeouts: Literal["preset", "on", "off"] = DEFAULT
    adaptive_timeout: Literal["preset", "on", "off"] = DEFAULT
    unpaced_without_link: Literal["preset", "on", "off"] = DEFAULT
    checksums: Literal["preset", "on", "off"] = DEFAULT
    overcommit: Literal["preset", "on", "off"] = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
    replicas: int = DEFAULT
    reads: float = DEFAULT
    keys: int = DEFAULT
    value_bytes: int = DEFAULT
    in_flight: int = DEFAULT
    durability: Literal["disk", "memory"] = DEFAULT
    snapshot_entries: int = DEFAULT
    election_timeout_ns: int = DEFAULT
    heartbeat_ns: int = DEFAULT
    try_timeout_ns: int = DEFAULT
    pause_ns: int = DEFAULT
    history: bool = DEFAULT


@dataclass(frozen=True)
class ErpcStore(Workload):
    """Node 0 serves an ordered store over RPCs, and the other nodes read it (eRPC, section 7.2).

    Gets run in the dispatch threads of node 0; scans and puts run in its worker threads. Every
    response is checked. Latencies ``get``, ``scan`` and ``put``. Metrics: ``retransmissions`` of
    each client's thread, ``handled`` requests of each dispatch thread of node 0. Node 0 needs LMDB.

    Parameters
    ----------
    threads
        Threads of a node, each with an endpoint (1 to 64, default 1).
    preset
        ERPC's protocol: the paper's, that with the constants of the public program, or with every
        improvement on (default best).
    congestion_control
        Rate control of a session: by round-trip times (timely), by the marks of switches (dcqcn),
        or none (default preset).
    credits
        Packets of a session under way (1 to 4,096, default 32).
    slots
        Requests of a session under way; a power of two (1 to 64, default 8).
    packet_bytes
        Bytes of a packet; 0: as many as the device's datagrams have (bytes, 0 to 4,096, default 0).
    receive_entries
        Packets that may wait at an endpoint; 0: the credits of all its sessions (0 to 1,048,576,
        default 0).
    max_message
        The longest message; 0: 8 MiB. A shorter one allows shorter packets (bytes, 0 to 8,388,608,
        default 0).
    link_gbps
        The most that a session sends; 0: the device's link (Gbit/s, 0 to 10,000, default 0).
    retransmission_timeout_ns
        Time without an answer after which packets are sent again (ns, at least 1,000, default
        5,000,000).
    failure_timeout_ns
        Silence after which a node counts as dead (ns, at least 10,000, default 500,000,000).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        60,000).
    batched_timestamps
        One reading of the clock per batch (section 5.2.2) (default preset).
    timely_bypass
        No new rate while a session is uncongested (section 5.2.2) (default preset).
    rate_limiter_bypass
        No wait in the wheel while a session is uncongested (section 5.2.2) (default preset).
    multi_packet_receives
        One receive for many packets, where the NIC can (section 4.1.1) (default preset).
    preallocated_responses
        A response buffer in each slot of a server (section 4.3) (default preset).
    zero_copy_receive
        Handlers read the NIC's buffer (section 4.2.3) (default preset).
    request_copies
        The server copies a long request together; off measures the copies (section 6.4) (default
        preset).
    growing_timeouts
        The retransmission timeout doubles after each eight copies without an answer; not in the
        paper (default preset).
    adaptive_timeout
        The retransmission timeout follows the round trips; not in the paper (default preset).
    unpaced_without_link
        No rate control over a device without a link, such as shared memory; not in the paper
        (default preset).
    checksums
        A checksum in each packet; not in the paper (default preset).
    overcommit
        More credits of all sessions than receives of the endpoint (default preset).
    warmup_ns
        Time before the measurement; discarded (ns, at least 0, default 10,000).
    iterations
        Maximum number of measured operations per thread; 0: no limit except the duration (at least
        0, default 0).
    server_threads
        Dispatch threads of node 0, each with an endpoint; `threads` are those of a client (1 to 64,
        default 1).
    workers
        Worker threads of node 0 in all, spread over its endpoints from the first on; they run scans
        and puts; 0: the dispatch threads run them (0 to 64, default 1).
    keys
        Keys of 8 bytes in the store, with values of 8 bytes (1 to 100,000,000, default 10,000).
    scans
        Fraction of scans, which sum the values of the next 128 keys (0 to 1, default 0.01).
    puts
        Fraction of puts; the rest, after the scans, are gets (0 to 1, default 0).
    in_flight
        Requests of a client's thread under way (1 to 65,536, default 1).
    history
        Record all operations; pyrdma.check says whether they are linearizable (default False).
    """

    native: ClassVar[str] = "erpc_store"
    threads: int = DEFAULT
    preset: Literal["paper", "public", "best"] = DEFAULT
    congestion_control: Literal["preset", "none", "timely", "dcqcn"] = DEFAULT
    credits: int = DEFAULT
    slots: int = DEFAULT
    packet_bytes: int = DEFAULT
    receive_entries: int = DEFAULT
    max_message: int = DEFAULT
    link_gbps: float = DEFAULT
    retransmission_timeout_ns: int = DEFAULT
    failure_timeout_ns: int = DEFAULT
    wait_timeout_ms: int = DEFAULT
    batched_timestamps: Literal["preset", "on", "off"] = DEFAULT
    timely_bypass: Literal["preset", "on", "off"] = DEFAULT
    rate_limiter_bypass: Literal["preset", "on", "off"] = DEFAULT
    multi_packet_receives: Literal["preset", "on", "off"] = DEFAULT
    preallocated_responses: Literal["preset", "on", "off"] = DEFAULT
    zero_copy_receive: Literal["preset", "on", "off"] = DEFAULT
    request_copies: Literal["preset", "on", "off"] = DEFAULT
    growing_timeouts: Literal["preset", "on", "off"] = DEFAULT
    adaptive_timeout: Literal["preset", "on", "off"] = DEFAULT
    unpaced_without_link: Literal["preset", "on", "off"] = DEFAULT
    checksums: Literal["preset", "on", "off"] = DEFAULT
    overcommit: Literal["preset", "on", "off"] = DEFAULT
    warmup_ns: int = DEFAULT
    iterations: int = DEFAULT
    server_threads: int = DEFAULT
    workers: int = DEFAULT
    keys: int = DEFAULT
    scans: float = DEFAULT
    puts: float = DEFAULT
    in_flight: int = DEFAULT
    history: bool = DEFAULT
