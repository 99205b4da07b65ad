"""Low-level verbs: devices, registered memory as NumPy arrays, queue pairs, batches.

These functions serve experiments that no workload covers. The objects are native and the same on
every fabric; this module names them and makes requests.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=2, profile="cx5") as cluster:
...     a, b = cluster.devices
...     here, there = a.protection_domain(), b.protection_domain()
...     source = here.allocate(4096)
...     target = there.allocate(4096, access=rd.verbs.LOCAL_WRITE | rd.verbs.REMOTE_WRITE)
...     cq, other = a.completion_queue(64), b.completion_queue(64)
...     qp, peer = here.queue_pair(cq), there.queue_pair(other)
...     qp.connect(peer.address)
...     peer.connect(qp.address)
...     source.array[:64] = 7
...     qp.post([rd.verbs.write(source.sge(0, 64), target.remote, wr_id=1)])
...     len(cq.poll(timeout_s=1.0))
1

The objects
-----------
``cluster.devices`` has the first `Device` of each node of this process, and
``cluster.devices_of(node)`` all of a node. A device makes a `ProtectionDomain` and a
`CompletionQueue`; the domain makes each `MemoryRegion`, `QueuePair`, `SharedReceiveQueue` and
`AddressHandle`.

``close()`` releases any of them; later calls raise `pyrdma.Unavailable`. A queue pair must be
closed before its completion queues, its shared receive queue and the address handles of its
requests, whose ``close()`` raises `pyrdma.InvalidArgument` until then. Objects made in a
``ProtectionDomain`` outlive it. A queue pair that no variable refers to is destroyed, and the
requests of its peer then end as ``Status.RETRY_EXCEEDED``: keep both ends as long as they are
connected.

Errors: `pyrdma.InvalidArgument` for invalid arguments, `pyrdma.Unavailable` for objects of a
closed cluster or a killed node, `pyrdma.Exhausted` for resources. No misuse from Python crashes
the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt

from ._core import verbs as _native
from ._core.verbs import (
    AddressHandle,
    CompletionQueue,
    Device,
    MemoryRegion,
    Opcode,
    ProtectionDomain,
    QpAddress,
    QpState,
    QueuePair,
    Receive,
    RemoteRegion,
    Request,
    Sge,
    SharedReceiveQueue,
    Status,
    completion_dtype,
    request_dtype,
)
from .arguments import Between, check, checked, whole
from .errors import InvalidArgument

__all__ = [
    "ALL_ACCESS",
    "COMPLETION_DTYPE",
    "CONGESTED",
    "FENCE",
    "GRH_BYTES",
    "HAS_GRH",
    "HAS_IMMEDIATE",
    "INLINE",
    "LOCAL_WRITE",
    "RELAXED_ORDERING",
    "REMOTE_ATOMIC",
    "REMOTE_READ",
    "REMOTE_WRITE",
    "REQUEST_DTYPE",
    "SIGNALED",
    "AddressHandle",
    "CompletionQueue",
    "Device",
    "MemoryRegion",
    "Opcode",
    "ProtectionDomain",
    "QpAddress",
    "QpState",
    "QueuePair",
    "Receive",
    "RemoteRegion",
    "Request",
    "Sge",
    "SharedReceiveQueue",
    "Status",
    "compare_swap",
    "fetch_add",
    "read",
    "receive",
    "requests",
    "send",
    "write",
]

LOCAL_WRITE = _native.LOCAL_WRITE
"""A right of a region: the NIC may write to it for its own node, as a receive or a read does."""
REMOTE_WRITE = _native.REMOTE_WRITE
"""A right of a region or a queue pair: peers may write. A region needs `LOCAL_WRITE`, too."""
REMOTE_READ = _native.REMOTE_READ
"""A right of a region or a queue pair: peers may read."""
REMOTE_ATOMIC = _native.REMOTE_ATOMIC
"""A right of a region or a queue pair: atomics of peers. A region needs `LOCAL_WRITE`, too."""
ALL_ACCESS = _native.ALL_ACCESS
"""The rights `LOCAL_WRITE`, `REMOTE_WRITE`, `REMOTE_READ` and `REMOTE_ATOMIC`."""
RELAXED_ORDERING = _native.RELAXED_ORDERING
"""An option of a region: the writes of peers to it may become visible in any order."""

SIGNALED = _native.SIGNALED
"""A flag of a request: its success gives a completion. An error always gives one."""
INLINE = _native.INLINE
"""A flag of a request: the post copies the payload, so its buffers are free afterwards."""
FENCE = _native.FENCE
"""A flag of a request: it starts after all earlier reads and atomics of its queue pair."""

HAS_IMMEDIATE = _native.HAS_IMMEDIATE
"""A flag of a completion: the field ``immediate`` is valid."""
HAS_GRH = _native.HAS_GRH
"""A flag of a completion (UD): the receive begins with a header of `GRH_BYTES`."""
CONGESTED = _native.CONGESTED
"""A flag of a completion (UD, fabric ``sim``): a switch on the datagram's way had a long queue."""
GRH_BYTES = _native.GRH_BYTES
"""Length of the global routing header before the payload of a datagram, in bytes."""

COMPLETION_DTYPE = completion_dtype()
"""Dtype of the structured arrays that `CompletionQueue.poll` returns."""
REQUEST_DTYPE = request_dtype()
"""Dtype of the structured arrays that `QueuePair.post` takes; see `requests`."""

Buffers = Sequence[Sge]


def _buffers(name: str, given: Sge | Buffers) -> Buffers:
    """Return the local buffers as a list."""
    if type(given) is Sge:
        return [given]
    check(name, given, Sge | Buffers)
    return given  # type: ignore[return-value]


def _buffer(name: str, given: Sge) -> Sge:
    if type(given) is not Sge:
        check(name, given, Sge)
    return given


def _remote(name: str, region: RemoteRegion, offset: int) -> int:
    """Return the address that is `offset` bytes into the region of a peer."""
    if type(region) is not RemoteRegion:
        check(name, region, RemoteRegion)
    if type(offset) is not int or not 0 <= offset <= region.length:
        offset = whole("offset", offset, 0, region.length)
    return region.addr + offset


def _handle(to: AddressHandle | None) -> AddressHandle | None:
    if to is not None:
        check("to", to, AddressHandle)
    return to


def _word(name: str, value: int) -> int:
    """Return the bits of a word of 64 bits, given with a sign or without."""
    return whole(name, value, -(2**63), 2**64 - 1) % 2**64


def write(
    source: Sge | Buffers,
    target: RemoteRegion,
    offset: int = 0,
    *,
    immediate: int | None = None,
    wr_id: int = 0,
    flags: int = SIGNALED,
    to: AddressHandle | None = None,
) -> Request:
    """Make a request that writes local buffers to a peer's memory.

    Parameters
    ----------
    source
        Local buffers, gathered in order. They belong to the NIC until the completion, unless
        `flags` has `INLINE`.
    target, offset
        Region of the peer, and bytes from its beginning.
    immediate
        32 bits that the peer gets in a completion of one of its receives.
    wr_id
        Identifier that the completion returns.
    flags
        Any of `SIGNALED`, `INLINE`, `FENCE`.
    to
        Destination on a DC queue pair.
    """
    opcode = Opcode.WRITE if immediate is None else Opcode.WRITE_IMM
    return Request(
        opcode,
        _buffers("source", source),
        wr_id=wr_id,
        flags=flags,
        remote_addr=_remote("target", target, offset),
        rkey=target.rkey,
        immediate=0 if immediate is None else immediate,
        address_handle=_handle(to),
    )


def read(
    target: Sge | Buffers,
    source: RemoteRegion,
    offset: int = 0,
    *,
    wr_id: int = 0,
    flags: int = SIGNALED,
    to: AddressHandle | None = None,
) -> Request:
    """Make a request that reads a peer's memory into local buffers.

    Parameters
    ----------
    target
        Local buffers, filled in order; the sum of their lengths is the number of bytes read.
    source, offset
        Region of the peer, and bytes from its beginning.
    wr_id, flags, to
        See `write`.
    """
    return Request(
        Opcode.READ,
        _buffers("target", target),
        wr_id=wr_id,
        flags=flags,
        remote_addr=_remote("source", source, offset),
        rkey=source.rkey,
        address_handle=_handle(to),
    )


def send(
    source: Sge | Buffers,
    *,
    immediate: int | None = None,
    wr_id: int = 0,
    flags: int = SIGNALED,
    to: AddressHandle | None = None,
) -> Request:
    """Make a request that sends local buffers into the peer's next receive.

    Parameters
    ----------
    source, immediate, wr_id, flags
        See `write`.
    to
        Destination on a UD or DC queue pair. A UD receive begins with `GRH_BYTES` bytes of header.
    """
    return Request(
        Opcode.SEND if immediate is None else Opcode.SEND_IMM,
        _buffers("source", source),
        wr_id=wr_id,
        flags=flags,
        immediate=0 if immediate is None else immediate,
        address_handle=_handle(to),
    )


def fetch_add(
    old: Sge,
    target: RemoteRegion,
    offset: int,
    addend: int,
    *,
    wr_id: int = 0,
    flags: int = SIGNALED,
    to: AddressHandle | None = None,
) -> Request:
    """Make a request that adds to 8 aligned bytes of a peer, atomically among its NIC's atomics.

    Parameters
    ----------
    old
        Local buffer of 8 bytes for the old value.
    target, offset
        Region of the peer, and bytes from its beginning.
    addend
        Added modulo 2**64.
    wr_id, flags, to
        See `write`.
    """
    return Request(
        Opcode.FETCH_ADD,
        [_buffer("old", old)],
        wr_id=wr_id,
        flags=flags,
        remote_addr=_remote("target", target, offset),
        rkey=target.rkey,
        compare_add=_word("addend", addend),
        address_handle=_handle(to),
    )


def compare_swap(
    old: Sge,
    target: RemoteRegion,
    offset: int,
    expected: int,
    desired: int,
    *,
    wr_id: int = 0,
    flags: int = SIGNALED,
    to: AddressHandle | None = None,
) -> Request:
    """Make a request that replaces 8 aligned bytes of a peer if they are `expected`.

    Parameters
    ----------
    old
        Local buffer of 8 bytes for the old value.
    target, offset
        Region of the peer, and bytes from its beginning.
    expected, desired
        Unsigned 64-bit values.
    wr_id, flags, to
        See `write`.
    """
    return Request(
        Opcode.COMPARE_SWAP,
        [_buffer("old", old)],
        wr_id=wr_id,
        flags=flags,
        remote_addr=_remote("target", target, offset),
        rkey=target.rkey,
        compare_add=_word("expected", expected),
        swap=_word("desired", desired),
        address_handle=_handle(to),
    )


def receive(target: Sge | Buffers, *, wr_id: int = 0) -> Receive:
    """Make a receive: the buffers for the next message.

    Parameters
    ----------
    target
        Local buffers, filled in order. On UD they need 40 bytes (`GRH_BYTES`) beyond the message.
    wr_id
        Identifier that the completion returns.
    """
    return Receive(_buffers("target", target), wr_id=wr_id)


@checked
def requests(
    count: Annotated[int, Between(0, 2**24)],
    opcode: Opcode = Opcode.WRITE,
    flags: Annotated[int, Between(0, SIGNALED | INLINE | FENCE)] = SIGNALED,
) -> npt.NDArray[np.void]:
    """Make an array of requests with one local buffer each, to fill by columns and post at once.

    Parameters
    ----------
    count
        Number of requests.
    opcode, flags
        Values of all requests.

    Returns
    -------
    array, shape (count,), dtype REQUEST_DTYPE
        Columns ``wr_id, opcode, flags, length, lkey, rkey, local_addr, remote_addr, immediate,
        remote_qpn, remote_qkey, compare_add, swap``; those not named above are zero.
    """
    if opcode > Opcode.FETCH_ADD:
        raise InvalidArgument(f"opcode is {opcode!r}; give one that can be posted")
    rows = np.zeros(count, dtype=REQUEST_DTYPE)
    rows["opcode"] = int(opcode)
    rows["flags"] = flags
    return rows
