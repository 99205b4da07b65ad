"""LOCO's channel objects, from a script: named objects whose state lies across the nodes.

A channel is made for all nodes of a cluster at once; its methods take the node that acts. In a
simulated cluster they take virtual time, over shared memory real time. For load, give a channel
to a workload: the loops are native.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=3, profile="c6525-25g", seed=1) as cluster:
...     counter = rd.loco.AtomicVar(cluster, "counter", host=0)
...     lock = rd.loco.TicketLock(cluster, "lock")
...     for node in range(3):
...         with lock.held(node):
...             before = counter.fetch_add(1, node=node)
...     counter.load(node=2)
3

Where the nodes are other processes, channels are descriptions for workloads: using one from the
script raises `pyrdma.Unavailable`.

Errors: `pyrdma.InvalidArgument` for misuse (a name that is taken, an offset out of bounds, an
unlock by a stranger), `pyrdma.Timeout` when nodes do not do their part, `pyrdma.Unavailable` when
one does not answer; the node is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from operator import index
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

from ._native import native
from .cluster import Cluster, InProcess
from .errors import InvalidArgument, Unavailable

__all__ = [
    "AtomicVar",
    "Barrier",
    "Channel",
    "KvStore",
    "OwnedVar",
    "Preset",
    "SharedQueue",
    "SharedRegion",
    "TicketLock",
]

Preset = Literal["paper", "best"]
"""The protocol of a lock: with the paper's steps, or with all that is faster."""

_managers: WeakKeyDictionary[Cluster, Any] = WeakKeyDictionary()


def _open(cluster: Cluster) -> Any:
    """Return the native cluster, whose nodes live in this process."""
    if not isinstance(cluster, InProcess):
        raise Unavailable(
            "the nodes of this cluster are other processes: their channels are used by "
            "workloads; for a script use Cluster.sim(...) or Cluster.local(..., mode='thread')"
        )
    return cluster._open


def _managers_of(cluster: Cluster) -> Any:
    """Return the managers of a cluster's nodes, made when the first channel is used."""
    if cluster not in _managers:
        core: Any = native()
        _managers[cluster] = core.loco.Managers(_open(cluster))
    return _managers[cluster]


def _whole(what: str, value: object, least: int = 0, most: int = 2**64 - 1) -> int:
    """Return a whole number that is within its bounds."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"{what} is {value!r}; give a whole number") from None
    if not least <= number <= most:
        raise InvalidArgument(f"{what} is {number}; allowed is {least} to {most}")
    return number


def _is_paper(preset: object) -> bool:
    """Return whether the preset is the paper's."""
    if preset not in get_args(Preset):
        raise InvalidArgument(f"preset is {preset!r}; give 'paper' or 'best'")
    return preset == "paper"


class Channel:
    """What all channels have: a cluster, a name; endpoints on every node, made at the first use.

    Parameters
    ----------
    cluster
        Whose nodes take part.
    name
        The same on all nodes; 1 to 119 bytes, without ``.``.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def _make(self, core: Any, managers: Any) -> Any:
        raise NotImplementedError

    def _node(self, node: object, what: str = "node") -> int:
        number = _whole(what, node, -(2**63))
        if not 0 <= number < self.cluster.nodes:
            last = self.cluster.nodes - 1
            raise InvalidArgument(f"{what} is {number}; the channel's nodes are 0 to {last}")
        return number

    @cached_property
    def _native(self) -> Any:
        core: Any = native()
        return self._make(core.loco, _managers_of(self.cluster))


class Barrier(Channel):
    """A barrier between all nodes (LOCO, figure 1a)."""

    def _make(self, core: Any, managers: Any) -> Any:
        return core.Barrier(managers, self.name)

    def wait(self) -> list[int]:
        """Let every node wait; return how long each did, in ns, by node.

        What any node wrote before is visible to all afterwards.
        """
        return list(self._native.wait())


class SharedRegion(Channel):
    """Memory of one size on every node, which all read and write; nothing orders or protects it.

    Parameters
    ----------
    size
        Bytes on each node.
    """

    def __init__(self, cluster: Cluster, name: str, size: int) -> None:
        super().__init__(cluster, name)
        self.size = _whole("size", size, 1)

    def _make(self, core: Any, managers: Any) -> Any:
        return core.SharedRegion(managers, self.name, self.size)

    def write(self, data: bytes, *, node: int, to: int, offset: int = 0) -> None:
        """Write up to 4096 bytes from `node` into the part of node `to`; wait until visible."""
        self._native.write(
            self._node(node), self._node(to, "to"), _whole("offset", offset), bytes(data)
        )

    def read(self, size: int, *, node: int, of: int, offset: int = 0) -> bytes:
        """Read up to 4096 bytes of the part of node `of` over the network, from `node`."""
        return bytes(
            self._native.read(
                self._node(node),
                self._node(of, "of"),
                _whole("offset", offset),
                _whole("size", size),
            )
        )


class OwnedVar(Channel):
    """A 64-bit number with one writer and a copy on every node.

    Parameters
    ----------
    owner
        The node that writes.
    """

    def __init__(self, cluster: Cluster, name: str, owner: int) -> None:
        super().__init__(cluster, name)
        self.owner = self._node(owner, "owner")

    def _make(self, core: Any, managers: Any) -> Any:
        return core.OwnedVar(managers, self.name, self.owner)

    def store(self, value: int) -> None:
        """Set the owner's copy."""
        self._native.store(_whole("value", value, -(2**63), 2**63 - 1))

    def push(self) -> None:
        """Write the owner's copy into all others."""
        self._native.push()

    def pull(self, *, node: int) -> int:
        """Read the owner's copy over the network into that of `node`; return it."""
        return int(self._native.pull(self._node(node)))

    def load(self, *, node: int) -> int:
        """Return the copy of `node`, as the last push or pull left it."""
        return int(self._native.load(self._node(node)))


class AtomicVar(Channel):
    """A 64-bit word at one node, for remote atomics of all.

    Parameters
    ----------
    host
        The node that holds it.
    """

    def __init__(self, cluster: Cluster, name: str, host: int) -> None:
        super().__init__(cluster, name)
        self.host = self._node(host, "host")

    def _make(self, core: Any, managers: Any) -> Any:
        return core.AtomicVar(managers, self.name, self.host)

    def fetch_add(self, addend: int, *, node: int) -> int:
        """Add, modulo 2**64; return the value before."""
        return int(
            self._native.fetch_add(self._node(node), _whole("addend", addend, -(2**63)) % 2**64)
        )

    def compare_swap(self, expected: int, desired: int, *, node: int) -> int:
        """Set to `desired` if it is `expected`; return the value before."""
        return int(
            self._native.compare_swap(
                self._node(node), _whole("expected", expected), _whole("desired", desired)
            )
        )

    def load(self, *, node: int) -> int:
        """Read it over the network."""
        return int(self._native.load(self._node(node)))


class TicketLock(Channel):
    """A fair lock between all nodes; its words are at node 0.

    Parameters
    ----------
    preset
        The protocol: the ``best``, or the steps of the ``paper``, which take more round trips.
    """

    def __init__(self, cluster: Cluster, name: str, preset: Preset = "best") -> None:
        super().__init__(cluster, name)
        self.preset = preset
        self._paper = _is_paper(preset)

    def _make(self, core: Any, managers: Any) -> Any:
        return core.TicketLock(managers, self.name, self._paper)

    def acquire(self, *, node: int) -> None:
        """Wait for the lock. Raises `pyrdma.Timeout`, with what it waited for, after 10 s."""
        self._native.acquire(self._node(node))

    def release(self, *, node: int) -> None:
        """Give it up; what `node` did before is visible to the next holder.

        Raises `pyrdma.InvalidArgument` when `node` does not hold it.
        """
        self._native.release(self._node(node))

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
        Entries, over all nodes.
    """

    def __init__(self, cluster: Cluster, name: str, capacity: int = 1024) -> None:
        super().__init__(cluster, name)
        self.capacity = _whole("capacity", capacity, 1)

    def _make(self, core: Any, managers: Any) -> Any:
        return core.SharedQueue(managers, self.name, self.capacity)

    def push(self, value: int, *, node: int) -> bool:
        """Append; False when it is full."""
        return bool(
            self._native.push(self._node(node), _whole("value", value, -(2**63), 2**63 - 1))
        )

    def pop(self, *, node: int) -> int | None:
        """Take the oldest; None when it is empty."""
        value = self._native.pop(self._node(node))
        return None if value is None else int(value)


class KvStore(Channel):
    """The key-value store (LOCO, section 6): 64-bit keys and values.

    Parameters
    ----------
    keys
        How many keys it has room for, spread evenly over the nodes.
    fill
        Part of them, 0 to 1, that is there from the start: keys 0, 1, ..., with the key as value.
    preset
        The protocol of its locks: the ``best``, or the steps of the ``paper``.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        keys: int = 65536,
        fill: float = 0.0,
        preset: Preset = "best",
    ) -> None:
        if not 0 <= fill <= 1:
            raise InvalidArgument(f"fill is {fill}; allowed is 0 to 1")
        super().__init__(cluster, name)
        self.keys = _whole("keys", keys, 1)
        self.fill = fill
        self.preset = preset
        self._paper = _is_paper(preset)

    def _make(self, core: Any, managers: Any) -> Any:  # noqa: ARG002 - a store has its own
        own = core.Managers(_open(self.cluster), callers=2)
        filled = int(self.keys * self.fill)
        return core.KvStore(own, self.name, self.keys, filled, self._paper)

    def insert(self, key: int, value: int, *, node: int) -> bool:
        """Add a key, stored at `node`; False when it is there already.

        Raises `pyrdma.Exhausted` when `node` has no room.
        """
        return bool(
            self._native.insert(self._node(node), _whole("key", key), _whole("value", value))
        )

    def update(self, key: int, value: int, *, node: int) -> bool:
        """Replace a key's value; False when there is no such key."""
        return bool(
            self._native.update(self._node(node), _whole("key", key), _whole("value", value))
        )

    def remove(self, key: int, *, node: int) -> bool:
        """Remove a key; False when there is none."""
        return bool(self._native.remove(self._node(node), _whole("key", key)))

    def lookup(self, key: int, *, node: int) -> int | None:
        """Return a key's value, or None. Takes no lock."""
        value = self._native.lookup(self._node(node), _whole("key", key))
        return None if value is None else int(value)
