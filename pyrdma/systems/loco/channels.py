"""The channels of LOCO for scripts: signatures and docstrings of native methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal
from weakref import WeakKeyDictionary

from pyrdma._native import native
from pyrdma.arguments import Between, Fraction, checked, shown
from pyrdma.cluster import Cluster
from pyrdma.errors import InvalidArgument
from pyrdma.systems.operation import (
    Node,
    PerNode,
    Signed,
    Unsigned,
    Word,
    open_cluster,
    operation,
)

__all__ = [
    "AtomicVar",
    "Barrier",
    "Channel",
    "KvStore",
    "OwnedVar",
    "SharedQueue",
    "SharedRegion",
    "TicketLock",
]

Preset = Literal["paper", "best"]
"""The protocol of a lock: the steps of the paper, or the paper's steps with faster ones."""

Extent = Annotated[int, Between(1, 10**12)]
"""A number of bytes, entries or keys; a larger one fits no cluster."""

_managers: WeakKeyDictionary[Cluster, Any] = WeakKeyDictionary()


def _managers_of(cluster: Cluster) -> Any:
    """Return the managers of a cluster's nodes, made when the first channel is used."""
    if cluster not in _managers:
        core: Any = native()
        _managers[cluster] = core.loco.Managers(open_cluster(cluster))
    return _managers[cluster]


class Channel(PerNode):
    """A named object with an endpoint on every node; the endpoints are made at the first use.

    Parameters
    ----------
    cluster
        The cluster whose nodes take part.
    name
        Name of the channel, the same on all nodes; 1 to 119 bytes, without ``.``.
    *arguments
        Further arguments of the native class.
    """

    own_managers: ClassVar[bool] = False
    """Whether the channel has managers of its own, with a second caller for a service thread."""

    @checked
    def __init__(self, cluster: Cluster, name: str, *arguments: object) -> None:
        super().__init__(cluster)
        size = len(name.encode())
        if not 1 <= size <= 119 or "." in name:
            raise InvalidArgument(
                f"name is {shown(name)} of {size} bytes; give 1 to 119, without '.'"
            )
        self.name = name
        self._arguments = arguments

    def _make(self, core: Any) -> Any:
        if self.own_managers:
            managers = core.loco.Managers(open_cluster(self.cluster), callers=2)
        else:
            managers = _managers_of(self.cluster)
        channels = vars(core.loco.channels)
        kind = next(channels[c.__name__] for c in type(self).__mro__ if c.__name__ in channels)
        return kind(managers, self.name, *self._arguments)


class Barrier(Channel):
    """A barrier between all nodes (LOCO, figure 1a)."""

    @checked
    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)

    @operation
    def wait(self) -> list[int]:
        """Let every node wait; return the waiting times in ns, by node.

        Afterwards all nodes see every write that a node made before.
        """
        raise NotImplementedError

    @operation
    def arrive(self, *, node: Node) -> int:
        """Let one node wait until all have arrived; return its waiting time in ns.

        For node programs, whose nodes run at the same time.
        """
        raise NotImplementedError


class SharedRegion(Channel):
    """Memory of one size on every node, which all nodes read and write without order or protection.

    Parameters
    ----------
    size
        Number of bytes on each node.
    """

    @checked
    def __init__(self, cluster: Cluster, name: str, size: Extent) -> None:
        super().__init__(cluster, name, size)
        self.size = size

    @operation
    def write(self, data: bytes, *, node: Node, to: Node, offset: Unsigned = 0) -> None:
        """Write up to 4096 bytes from `node` into the part of node `to`; wait till visible."""
        raise NotImplementedError

    @operation
    def read(
        self,
        size: Annotated[int, Between(0, 2**32 - 1)],
        *,
        node: Node,
        of: Node,
        offset: Unsigned = 0,
    ) -> bytes:
        """Read up to 4096 bytes of the part of node `of` over the network, from `node`."""
        raise NotImplementedError


class OwnedVar(Channel):
    """A 64-bit number with one writer and a copy on every node.

    Parameters
    ----------
    owner
        The node that writes.
    """

    @checked
    def __init__(self, cluster: Cluster, name: str, owner: int) -> None:
        super().__init__(cluster, name, owner)
        self.owner = self._node("owner", owner)

    @operation
    def store(self, value: Signed) -> None:
        """Set the owner's copy."""
        raise NotImplementedError

    @operation
    def push(self) -> None:
        """Write the owner's copy into the copies of all other nodes."""
        raise NotImplementedError

    @operation
    def pull(self, *, node: Node) -> int:
        """Read the owner's copy over the network into the copy of `node`; return the value."""
        raise NotImplementedError

    @operation
    def load(self, *, node: Node) -> int:
        """Return the copy of `node`, which the last push or pull wrote."""
        raise NotImplementedError


class AtomicVar(Channel):
    """A 64-bit word at one node, for remote atomics of all nodes.

    Parameters
    ----------
    host
        The node that holds it.
    """

    @checked
    def __init__(self, cluster: Cluster, name: str, host: int) -> None:
        super().__init__(cluster, name, host)
        self.host = self._node("host", host)

    @operation
    def fetch_add(self, addend: Word, *, node: Node) -> int:
        """Add `addend` modulo 2**64; return the value before."""
        raise NotImplementedError

    @operation
    def compare_swap(self, expected: Unsigned, desired: Unsigned, *, node: Node) -> int:
        """Set the word to `desired` if it is `expected`; return the value before."""
        raise NotImplementedError

    @operation
    def load(self, *, node: Node) -> int:
        """Read the word over the network."""
        raise NotImplementedError


class TicketLock(Channel):
    """A fair lock between all nodes; its words are at node 0.

    A node that dies while it holds the lock keeps it, and there is no lease. A node that is cut off
    from node 0 may lose a ticket: then nobody gets the lock any more, and the errors of the others
    name that node. A node whose `acquire` has timed out keeps its place in the queue. It passes the
    lock on in its next calls over the network; until then the errors of the others name it.

    Parameters
    ----------
    preset
        The protocol of the lock: ``best``, or the steps of the ``paper``.
    """

    @checked
    def __init__(self, cluster: Cluster, name: str, preset: Preset = "best") -> None:
        super().__init__(cluster, name, preset == "paper")
        self.preset = preset

    @operation
    def acquire(self, *, node: Node) -> None:
        """Wait for the lock. Tasks of one node wait for each other too.

        Raises `pyrdma.Timeout` after 10 s; the error names the lock's holder.
        """
        raise NotImplementedError

    @operation
    def try_acquire(self, *, node: Node) -> bool:
        """Take the lock if nobody holds it or waits for it; return whether it was taken."""
        raise NotImplementedError

    @operation
    def release(self, *, node: Node) -> None:
        """Release the lock; the next holder sees the writes that `node` made before.

        Raises `pyrdma.InvalidArgument` when `node` does not hold it, or when another task of `node`
        holds it, or the script does and a task calls.
        """
        raise NotImplementedError

    @contextmanager
    def held(self, node: int) -> Iterator[None]:
        """Hold the lock within a ``with`` block."""
        self.acquire(node=node)
        try:
            yield
        finally:
            self.release(node=node)


class SharedQueue(Channel):
    """A bounded first-in-first-out queue of 64-bit numbers, shared by all nodes.

    Parameters
    ----------
    capacity
        Number of entries over all nodes.
    """

    @checked
    def __init__(self, cluster: Cluster, name: str, capacity: Extent = 1024) -> None:
        super().__init__(cluster, name, capacity)
        self.capacity = capacity

    @operation
    def push(self, value: Signed, *, node: Node) -> bool:
        """Append `value`; False if the queue is full."""
        raise NotImplementedError

    @operation
    def pop(self, *, node: Node) -> int | None:
        """Remove and return the oldest value; None if the queue is empty."""
        raise NotImplementedError


class KvStore(Channel):
    """The key-value store (LOCO, section 6): 64-bit keys and values.

    Parameters
    ----------
    keys
        Largest number of keys, spread evenly over the nodes.
    fill
        Share of the keys, 0 to 1, that the store has from the start: keys 0, 1, ..., each with the
        key as its value.
    preset
        The protocol of the store's locks: ``best``, or the steps of the ``paper``.
    """

    own_managers: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        cluster: Cluster,
        name: str,
        keys: Extent = 65536,
        fill: Fraction = 0.0,
        preset: Preset = "best",
    ) -> None:
        super().__init__(cluster, name, keys, int(keys * fill), preset == "paper")
        self.keys = keys
        self.fill = fill
        self.preset = preset

    @operation
    def insert(self, key: Unsigned, value: Unsigned, *, node: Node) -> bool:
        """Add a key, stored at `node`; False if the store has the key already.

        Raises `pyrdma.Exhausted` when `node` has no room.
        """
        raise NotImplementedError

    @operation
    def update(self, key: Unsigned, value: Unsigned, *, node: Node) -> bool:
        """Replace a key's value; False if the store has no such key."""
        raise NotImplementedError

    @operation
    def remove(self, key: Unsigned, *, node: Node) -> bool:
        """Remove a key; False if the store has no such key."""
        raise NotImplementedError

    @operation
    def lookup(self, key: Unsigned, *, node: Node) -> int | None:
        """Return a key's value, or None if the store has no such key. It takes no lock."""
        raise NotImplementedError
