"""Bytes of connections, by the entries of their queues (sections 2.3.2 and 5.2).

The paper gives the entries of a queue pair of LITE and the bytes of an entry. The driver makes the
send queue and the completion queue a power of two (Linux mlx5, ``calc_sq_size`` and
``create_cq_user``), which gives 160 KiB. KRCore's dynamic queue pairs have the same send queue;
those of a pool share one completion queue.
"""

from __future__ import annotations

from typing import Any

from pyrdma._native import native

SEND_ENTRIES = 292
COMPLETION_ENTRIES = 257
SEND_BYTES = 448
COMPLETION_BYTES = 64
INPUT = "the accounting begins with this number of the paper"
ACCOUNTING = "an account of the paper's entries, not a measurement"
LITE_QUEUES = 2.0
"""LITE's memory with message queues to that without: the paper's ratio, not explained by it."""


def power_of_two(number: int) -> int:
    """Return the least power of two that is not below the number."""
    return 1 << (number - 1).bit_length()


def send_queue() -> int:
    """Return the bytes of a send queue."""
    return power_of_two(SEND_ENTRIES * SEND_BYTES)


def completion_queue(entries: int) -> int:
    """Return the bytes of a completion queue; the driver adds one entry."""
    return power_of_two(entries + 1) * COMPLETION_BYTES


def queue_pair() -> int:
    """Return the bytes of a connection of LITE, without receive queue and buffers."""
    return send_queue() + completion_queue(COMPLETION_ENTRIES)


def pool(queue_pairs: int, cores: int) -> int:
    """Return the bytes of a node's dynamic queue pairs, with a completion queue for each core."""
    shared = completion_queue(queue_pairs // cores * SEND_ENTRIES)
    return queue_pairs * send_queue() + cores * shared


def metadata(nodes: int) -> int:
    """Return the bytes of the cached metadata of so many nodes."""
    core: Any = native()
    return nodes * int(core.krcore.dct_meta_bytes)
