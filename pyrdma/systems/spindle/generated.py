"""Workload classes of spindle, written by ``python -m tests.generated.workload_classes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pyrdma._workload import DEFAULT, Workload

__all__ = [
    "SpindleDds",
    "SpindleMulticast",
    "SpindleSurvivors",
]


@dataclass(frozen=True)
class SpindleDds(Workload):
    """Node 0 publishes samples of one topic, and all other nodes subscribe (Spindle, section 4.6).

    Metrics: ``delivered_bandwidth`` and ``message_rate``, averaged over the subscribers;
    ``logged_bytes`` of their logs. Latency ``sample``: of every eighth sample, from the loan at the
    publisher to the listener of a subscriber, over a fabric whose nodes share a clock.

    Parameters
    ----------
    preset
        Spindle's techniques: those of Derecho before it, then one more each, then ours (default
        paper).
    fixed_batch
        Messages for which the send predicate waits; 0: it never waits (0 to 65,536, default 0).
    window
        Slots of each sender (1 to 65,536, default 100).
    max_message
        Longest message (bytes, 1 to 8,388,608, default 10,240).
    predicate_thread
        The predicates run in a thread of their own, or in the sender's (default own).
    heartbeat_ns
        Time between two heartbeats (ns, at least 1,000, default 1,000,000).
    suspicion_timeout_ns
        Silence after which a member is taken for dead (ns, at least 2,000, default 10,000,000,000).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        60,000).
    batch_delivery
        Deliver all stable messages at once (3.2) (default preset).
    batch_receive
        Take all new messages of a sender at once (3.2) (default preset).
    batch_send
        Push all queued messages at once (3.2) (default preset).
    null_sends
        A sender that lags sends nulls (3.3) (default preset).
    post_unlocked
        Post after the lock is released (3.4) (default preset).
    batch_upcall
        One upcall for all messages of a delivery (3.5) (default preset).
    exact_bytes
        Push only the used bytes of the last slot; not in the paper (default preset).
    short_sends
        Push a long batch to all members in parts of at most 8 KiB; not in the paper (default
        preset).
    skip_quiet
        Look less often at subgroups where nothing happens; not in the paper (default preset).
    unlocked_upcalls
        The lock is free during upcalls; not in the paper (default preset).
    qos
        What subscribers may rely on (default atomic).
    samples
        Samples that the publisher publishes (at least 1, default 1,000).
    pause_ns
        Pause of the publisher after each sample (ns, at least 0, default 0).
    history
        Samples that a subscriber keeps in memory (1 to 10,000,000, default 1,000).
    sync_every
        Samples after which the log is synced; 0: at the end of the view (at least 0, default 0).
    """

    native: ClassVar[str] = "spindle_dds"
    preset: Literal["baseline", "batching", "batching+nulls", "paper", "best"] = DEFAULT
    fixed_batch: int = DEFAULT
    window: int = DEFAULT
    max_message: int = DEFAULT
    predicate_thread: Literal["own", "sender"] = DEFAULT
    heartbeat_ns: int = DEFAULT
    suspicion_timeout_ns: int = DEFAULT
    wait_timeout_ms: int = DEFAULT
    batch_delivery: Literal["preset", "on", "off"] = DEFAULT
    batch_receive: Literal["preset", "on", "off"] = DEFAULT
    batch_send: Literal["preset", "on", "off"] = DEFAULT
    null_sends: Literal["preset", "on", "off"] = DEFAULT
    post_unlocked: Literal["preset", "on", "off"] = DEFAULT
    batch_upcall: Literal["preset", "on", "off"] = DEFAULT
    exact_bytes: Literal["preset", "on", "off"] = DEFAULT
    short_sends: Literal["preset", "on", "off"] = DEFAULT
    skip_quiet: Literal["preset", "on", "off"] = DEFAULT
    unlocked_upcalls: Literal["preset", "on", "off"] = DEFAULT
    qos: Literal["unordered", "atomic", "volatile", "logged"] = DEFAULT
    samples: int = DEFAULT
    pause_ns: int = DEFAULT
    history: int = DEFAULT
    sync_every: int = DEFAULT


@dataclass(frozen=True)
class SpindleMulticast(Workload):
    """Senders stream messages to all members of a group (Spindle, section 4).

    Every node measures from the first message until it has delivered all. Latency ``multicast``: of
    every eighth message of a sender, from the reserved slot to its own delivery. Metrics:
    ``delivered_bandwidth`` and ``message_rate``, averaged over the nodes (the rows of the nodes are
    shares that add up to the average); ``ops``, delivered messages; ``pushes`` (multicasts of
    columns or slots), ``requests``, ``nulls``, ``null_iterations``; ``send_batched`` messages in
    ``send_batches``, and the same for receive and delivery; ``table_bytes``, the registered memory.
    Node 0 adds ``runtime`` and ``sender_wait_share``, and with `timed` the shares of posts, of
    active subgroups and of upcalls.

    Parameters
    ----------
    preset
        Spindle's techniques: those of Derecho before it, then one more each, then ours (default
        paper).
    fixed_batch
        Messages for which the send predicate waits; 0: it never waits (0 to 65,536, default 0).
    window
        Slots of each sender (1 to 65,536, default 100).
    max_message
        Longest message (bytes, 1 to 8,388,608, default 10,240).
    predicate_thread
        The predicates run in a thread of their own, or in the sender's (default own).
    heartbeat_ns
        Time between two heartbeats (ns, at least 1,000, default 1,000,000).
    suspicion_timeout_ns
        Silence after which a member is taken for dead (ns, at least 2,000, default 10,000,000,000).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        60,000).
    batch_delivery
        Deliver all stable messages at once (3.2) (default preset).
    batch_receive
        Take all new messages of a sender at once (3.2) (default preset).
    batch_send
        Push all queued messages at once (3.2) (default preset).
    null_sends
        A sender that lags sends nulls (3.3) (default preset).
    post_unlocked
        Post after the lock is released (3.4) (default preset).
    batch_upcall
        One upcall for all messages of a delivery (3.5) (default preset).
    exact_bytes
        Push only the used bytes of the last slot; not in the paper (default preset).
    short_sends
        Push a long batch to all members in parts of at most 8 KiB; not in the paper (default
        preset).
    skip_quiet
        Look less often at subgroups where nothing happens; not in the paper (default preset).
    unlocked_upcalls
        The lock is free during upcalls; not in the paper (default preset).
    senders
        Nodes that send, and that the group knows as senders (default all).
    delayed
        Senders that wait after each message; rest: all but the first (default none).
    delay_ns
        Time that a delayed sender computes after each message; -1: it sends nothing (ns, at least
        -1, default 0).
    messages
        Messages of each sender; with delayed senders the others send more, until each node has
        delivered as many as all together (at least 1, default 1,000).
    message
        Length of a message; 0: the longest (bytes, 0 to 8,388,608, default 0).
    subgroups
        Subgroups, each of all nodes (1 to 256, default 1).
    active
        Subgroups in which each sender sends, in turn (1 to 256, default 1).
    start_spread_ns
        Time within which the nodes begin, each at a random moment (ns, at least 0, default 10,000).
    upcall_ns
        Time that the upcall of a message computes (ns, at least 0, default 0).
    copy_in
        Copy each message into its slot (default False).
    copy_out
        Copy each message out of its slot at delivery (default False).
    timed
        Measure the times of predicates and posts (default False).
    batch_sizes
        Record how often a batch of node 0 had each size (default False).
    """

    native: ClassVar[str] = "spindle_multicast"
    preset: Literal["baseline", "batching", "batching+nulls", "paper", "best"] = DEFAULT
    fixed_batch: int = DEFAULT
    window: int = DEFAULT
    max_message: int = DEFAULT
    predicate_thread: Literal["own", "sender"] = DEFAULT
    heartbeat_ns: int = DEFAULT
    suspicion_timeout_ns: int = DEFAULT
    wait_timeout_ms: int = DEFAULT
    batch_delivery: Literal["preset", "on", "off"] = DEFAULT
    batch_receive: Literal["preset", "on", "off"] = DEFAULT
    batch_send: Literal["preset", "on", "off"] = DEFAULT
    null_sends: Literal["preset", "on", "off"] = DEFAULT
    post_unlocked: Literal["preset", "on", "off"] = DEFAULT
    batch_upcall: Literal["preset", "on", "off"] = DEFAULT
    exact_bytes: Literal["preset", "on", "off"] = DEFAULT
    short_sends: Literal["preset", "on", "off"] = DEFAULT
    skip_quiet: Literal["preset", "on", "off"] = DEFAULT
    unlocked_upcalls: Literal["preset", "on", "off"] = DEFAULT
    senders: Literal["none", "one", "half", "all"] = DEFAULT
    delayed: Literal["none", "one", "half", "all", "rest"] = DEFAULT
    delay_ns: int = DEFAULT
    messages: int = DEFAULT
    message: int = DEFAULT
    subgroups: int = DEFAULT
    active: int = DEFAULT
    start_spread_ns: int = DEFAULT
    upcall_ns: int = DEFAULT
    copy_in: bool = DEFAULT
    copy_out: bool = DEFAULT
    timed: bool = DEFAULT
    batch_sizes: bool = DEFAULT


@dataclass(frozen=True)
class SpindleSurvivors(Workload):
    """Members multicast numbered messages, also while nodes are killed and restarted.

    The others go on in a view without a dead node, and a restarted node joins them. A node that
    misses a message, or delivers one twice or out of order, fails the run. Latency ``multicast``:
    of a member's own messages, from the reserved slot to their delivery; the slowest ones waited
    for a new view. Metrics: ``ops``, delivered messages; ``sent``; ``views`` that a node has
    entered; ``joins`` after a restart or an exclusion. With `history`, ``result.history()`` has all
    views and deliveries of the nodes that are alive at the end.

    Parameters
    ----------
    preset
        Spindle's techniques: those of Derecho before it, then one more each, then ours (default
        paper).
    fixed_batch
        Messages for which the send predicate waits; 0: it never waits (0 to 65,536, default 0).
    window
        Slots of each sender (1 to 65,536, default 100).
    max_message
        Longest message (bytes, 1 to 8,388,608, default 10,240).
    predicate_thread
        The predicates run in a thread of their own, or in the sender's (default own).
    heartbeat_ns
        Time between two heartbeats (ns, at least 1,000, default 1,000,000).
    suspicion_timeout_ns
        Silence after which a member is taken for dead (ns, at least 2,000, default 10,000,000,000).
    wait_timeout_ms
        Time after which a wait for another node fails and names that node (ms, at least 1, default
        60,000).
    batch_delivery
        Deliver all stable messages at once (3.2) (default preset).
    batch_receive
        Take all new messages of a sender at once (3.2) (default preset).
    batch_send
        Push all queued messages at once (3.2) (default preset).
    null_sends
        A sender that lags sends nulls (3.3) (default preset).
    post_unlocked
        Post after the lock is released (3.4) (default preset).
    batch_upcall
        One upcall for all messages of a delivery (3.5) (default preset).
    exact_bytes
        Push only the used bytes of the last slot; not in the paper (default preset).
    short_sends
        Push a long batch to all members in parts of at most 8 KiB; not in the paper (default
        preset).
    skip_quiet
        Look less often at subgroups where nothing happens; not in the paper (default preset).
    unlocked_upcalls
        The lock is free during upcalls; not in the paper (default preset).
    message
        Length of a message (bytes, 24 to 8,388,608, default 1,024).
    interval_ns
        Time between two messages of a member; 0: as fast as slots are free (ns, at least 0, default
        100,000).
    history
        Record all views and deliveries; pyrdma.check says whether they fit (default False).
    """

    native: ClassVar[str] = "spindle_survivors"
    survives: ClassVar[bool] = True
    preset: Literal["baseline", "batching", "batching+nulls", "paper", "best"] = DEFAULT
    fixed_batch: int = DEFAULT
    window: int = DEFAULT
    max_message: int = DEFAULT
    predicate_thread: Literal["own", "sender"] = DEFAULT
    heartbeat_ns: int = DEFAULT
    suspicion_timeout_ns: int = DEFAULT
    wait_timeout_ms: int = DEFAULT
    batch_delivery: Literal["preset", "on", "off"] = DEFAULT
    batch_receive: Literal["preset", "on", "off"] = DEFAULT
    batch_send: Literal["preset", "on", "off"] = DEFAULT
    null_sends: Literal["preset", "on", "off"] = DEFAULT
    post_unlocked: Literal["preset", "on", "off"] = DEFAULT
    batch_upcall: Literal["preset", "on", "off"] = DEFAULT
    exact_bytes: Literal["preset", "on", "off"] = DEFAULT
    short_sends: Literal["preset", "on", "off"] = DEFAULT
    skip_quiet: Literal["preset", "on", "off"] = DEFAULT
    unlocked_upcalls: Literal["preset", "on", "off"] = DEFAULT
    message: int = DEFAULT
    interval_ns: int = DEFAULT
    history: bool = DEFAULT
