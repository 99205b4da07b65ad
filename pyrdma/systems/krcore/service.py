"""Services for scripts: applications, their virtual queue pairs and regions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pyrdma._native import native
from pyrdma.arguments import Between, checked
from pyrdma.cluster import Cluster
from pyrdma.errors import InvalidArgument, Unavailable
from pyrdma.systems.operation import PerNode, open_cluster, result_of, waits

__all__ = ["App", "Region", "Service", "Vqp", "attach"]

Preset = Literal["paper", "public"]
"""The paper's steps, or what the authors' public code does."""
RcPolicy = Literal["never", "sampled", "at_once"]
"""When a pool makes a reliable connection: never, to frequent peers, or at each connect."""
Port = Annotated[int, Between(1, 65535)]
Word = Annotated[int, Between(0, 2**64 - 1)]
Wait = Annotated[float, Between(0.0, 1e6)]
"""Seconds of the fabric's clock."""

_ACCESS = {"read": 4, "write": 3, "atomic": 9, "all": 15}


@dataclass(frozen=True)
class Region:
    """Memory of an application that peers may use; `Vqp.read` and `Vqp.write` name it.

    A process that is attached to a daemon names a region of another process by the address, key and
    size that its owner told: ``Region(app, addr, key, size)``.
    """

    app: App
    """The application that owns the memory."""
    addr: int
    """Its address on the node, which requests add an offset to."""
    key: int
    """Its virtual key, random and sparse."""
    size: int
    """In bytes."""

    @property
    def node(self) -> int:
        """The node that has the memory."""
        return self.app.node

    @waits
    async def load(self, size: Word, offset: Word = 0) -> bytes:
        """Return bytes as the CPU of the owner sees them."""
        self._check(offset, size)
        native = self.app.service._native
        found = native.load(self.node, self.app.number, self.key, offset, size)
        return bytes(await result_of(found))

    @waits
    async def store(self, data: bytes, offset: Word = 0) -> None:
        """Write bytes by the CPU of the owner."""
        self._check(offset, len(data), "data")
        native = self.app.service._native
        await result_of(native.store(self.node, self.app.number, self.key, offset, data))

    @waits
    async def deregister(self) -> None:
        """End the registration. Its memory is used again when all leases of peers have ended."""
        native = self.app.service._native
        await result_of(native.dereg_mr(self.node, self.app.number, self.key))

    def _check(self, offset: int, size: int, name: str = "size") -> None:
        if offset + size > self.size:
            raise InvalidArgument(
                f"{name} is {size} bytes from offset {offset} on; the region has {self.size} "
                f"bytes, so with this offset give at most {max(0, self.size - offset)}"
            )


class Vqp:
    """A virtual queue pair: it behaves like a reliable one of its own (section 4.1)."""

    def __init__(self, app: App, number: int) -> None:
        self.app = app
        self.number = number

    async def _call(self, name: str, *arguments: object) -> Any:
        """Call a native function of the queue pair."""
        native_function = getattr(self.app.service._native, name)
        return await result_of(
            native_function(self.app.node, self.app.number, self.number, *arguments)
        )

    @waits
    async def connect(self, node: Annotated[int, Between(0, 2**31)], port: Port = 1) -> int:
        """Connect to whoever binds `port` of `node`, and return the nanoseconds that it took.

        One-sided requests need no binding. A queue pair is connected once.
        """
        return int(await self._call("connect", node, port))

    @waits
    async def send(self, data: bytes, timeout_s: Wait = 10.0) -> None:
        """Send a message and wait for its completion.

        A message above `zero_copy_above` ends when its receiver has read it. So its receiver must
        pop messages meanwhile, in another thread.
        """
        await self._call("send", data, timeout_s)

    @waits
    async def pop_msgs(self, timeout_s: Wait = 1.0) -> list[tuple[Vqp, bytes]]:
        """Return the messages that have arrived, each with a queue pair to its sender.

        Waits up to `timeout_s` for the first message. On a connected queue pair, which has one
        peer, the queue pair is this one. An application that has all its queue pairs (`app_queues`)
        gives up those to senders that are idle, the least recently used first. A sender that lives
        gets another one with its next message.
        """
        found = await self._call("pop", timeout_s)
        return [(Vqp(self.app, number) if number else self, bytes(data)) for number, data in found]

    @waits
    async def read(
        self, region: Region, size: Word, offset: Word = 0, timeout_s: Wait = 10.0
    ) -> bytes:
        """Return `size` bytes of a region of the connected node."""
        region._check(offset, size)
        return bytes(await self._call("read", region.addr + offset, region.key, size, timeout_s))

    @waits
    async def write(
        self, region: Region, data: bytes, offset: Word = 0, timeout_s: Wait = 10.0
    ) -> None:
        """Write bytes to a region of the connected node."""
        region._check(offset, len(data), "data")
        await self._call("write", region.addr + offset, region.key, data, timeout_s)

    @waits
    async def fetch_add(
        self, region: Region, addend: Word, offset: Word = 0, timeout_s: Wait = 10.0
    ) -> int:
        """Add to a word of 8 bytes, and return what it was."""
        return await self._atomic(region, False, addend, 0, offset, timeout_s)

    @waits
    async def compare_swap(
        self,
        region: Region,
        expected: Word,
        desired: Word,
        offset: Word = 0,
        timeout_s: Wait = 10.0,
    ) -> int:
        """Replace a word of 8 bytes if it is `expected`, and return what it was."""
        return await self._atomic(region, True, expected, desired, offset, timeout_s)

    async def _atomic(
        self, region: Region, is_swap: bool, first: int, second: int, offset: int, timeout_s: float
    ) -> int:
        region._check(offset, 8, "offset")
        if offset % 8:
            raise InvalidArgument(f"offset is {offset}; an atomic needs a multiple of 8")
        addr = region.addr + offset
        return int(await self._call("atomic", addr, region.key, is_swap, first, second, timeout_s))

    @property
    def is_reliable(self) -> bool:
        """Whether a reliable connection carries it now, instead of a dynamic one.

        The daemon of an attached application does not tell.
        """
        if isinstance(self.app.service, _Daemon):
            raise Unavailable(
                "krcore: an attached application does not learn its connection; ask a Service"
            )
        return bool(self.app.service._native.uses_reliable(self.app.node, self.number))

    @waits
    async def close(self) -> None:
        """End the queue pair."""
        await self._call("destroy")


class App:
    """An application on one node. Its queue pairs and regions end with it."""

    def __init__(self, service: Service | _Daemon, node: int, number: int) -> None:
        self.service = service
        self.node = node
        self.number = number

    @waits
    async def vqp(self, bind: Port | None = None) -> Vqp:
        """Create a virtual queue pair, and bind it to a port if one is given."""
        number = await result_of(self.service._native.vqp(self.node, self.number, bind or 0))
        return Vqp(self, int(number))

    @waits
    async def reg_mr(
        self,
        size: Annotated[int, Between(1, 1 << 40)],
        access: Literal["read", "write", "atomic", "all"] = "all",
    ) -> Region:
        """Register zeroed memory that peers may use."""
        addr, key = await result_of(
            self.service._native.reg_mr(self.node, self.number, size, _ACCESS[access])
        )
        return Region(self, int(addr), int(key), size)

    @waits
    async def close(self) -> None:
        """End the application, and free what it has."""
        await result_of(self.service._native.close(self.node, self.number))


class _Daemon:
    """What an attached application has instead of a service."""

    def __init__(self, native: Any) -> None:
        self._native = native


@checked
def attach(
    path: str | os.PathLike[str],
    message_bytes: Annotated[int, Between(64, 64 << 20)] = 65_536,
) -> App:
    """Begin an application of this process at the daemon of its node.

    `path` is what `Service.listen` returned in another process of the same user. Calls go through
    a ring in shared memory, and need no cluster in this process. When this process ends, killed or
    not, its queue pairs end, and its memory is used again after the lease. When the daemon has
    ended, every call raises `Unavailable`.
    """
    core: Any = native()
    made = core.krcore.Attached(os.fspath(path), message_bytes)
    return App(_Daemon(made), int(made.node()), 0)


class Service(PerNode):
    """A service on each node of a cluster. The native parts are made at the first use.

    Parameters
    ----------
    cluster
        The cluster; its nodes live in this process.
    meta_servers
        Nodes that hold the metadata of all nodes, the nearest first.
    preset
        ``paper``: the paper's steps. ``public``: what the authors' public code does otherwise.
    cores
        Pools of a node; 0: one for each core that the fabric names, else 2.
    dc_queue_pairs, rc_queue_pairs
        Dynamic queue pairs of a pool, and the most reliable ones.
    rc_policy
        When a pool makes a reliable connection; by default as the preset does.
    sample_interval_s, frequent_requests
        A peer with so many requests of a pool in two intervals in a row gets a reliable connection.
    message_bytes, zero_copy_above
        Payload of a buffer of the service; payloads above the second are read by their receiver.
    arena_bytes
        Registered memory of each node's applications.
    lease_s
        Seconds for which a node may use a region that it has checked.
    app_queues, app_bytes
        Virtual queue pairs and registered memory that one application may have.
    """

    @checked
    def __init__(
        self,
        cluster: Cluster,
        meta_servers: Sequence[int] = (0,),
        preset: Preset = "paper",
        cores: Annotated[int, Between(0, 256)] = 0,
        dc_queue_pairs: Annotated[int, Between(1, 256)] = 2,
        rc_queue_pairs: Annotated[int, Between(0, 4096)] = 16,
        rc_policy: RcPolicy | None = None,
        sample_interval_s: Annotated[float, Between(1e-6, 1e4)] = 0.1,
        frequent_requests: Annotated[int, Between(1, 1 << 31)] = 1000,
        message_bytes: Annotated[int, Between(64, 16 << 20)] = 16_384,
        zero_copy_above: Annotated[int, Between(0, 16 << 20)] | None = None,
        arena_bytes: Annotated[int, Between(1 << 20, 1 << 40)] = 64 << 20,
        lease_s: Annotated[float, Between(1e-6, 1e4)] = 1.0,
        app_queues: Annotated[int, Between(1, 65_535)] = 16_384,
        app_bytes: Annotated[int, Between(64, 1 << 40)] = 64 << 30,
    ) -> None:
        super().__init__(cluster)
        for server in meta_servers:
            if not 0 <= server < cluster.nodes:
                raise InvalidArgument(
                    f"meta_servers names node {server}; the cluster has nodes 0 to "
                    f"{cluster.nodes - 1}"
                )
        self._options: dict[str, Any] = {
            "meta_servers": list(meta_servers),
            "public": preset == "public",
            "cores": cores,
            "dc_queue_pairs": dc_queue_pairs,
            "rc_queue_pairs": rc_queue_pairs,
            "sample_interval_ns": round(sample_interval_s * 1e9),
            "frequent_requests": frequent_requests,
            "message_bytes": message_bytes,
            "zero_copy_above": message_bytes if zero_copy_above is None else zero_copy_above,
            "arena_bytes": arena_bytes,
            "lease_ns": round(lease_s * 1e9),
            "app_queues": app_queues,
            "app_bytes": app_bytes,
        }
        if rc_policy is not None:
            self._options["rc_policy"] = ("never", "sampled", "at_once").index(rc_policy)

    def _make(self, core: Any) -> Any:
        return core.krcore.Services(open_cluster(self.cluster), self._options)

    @waits
    async def app(
        self,
        node: Annotated[int, Between(0, 2**31)],
        message_bytes: Annotated[int, Between(64, 64 << 20)] = 65_536,
    ) -> App:
        """Begin an application on a node; its buffers have room for `message_bytes` each."""
        return App(self, node, int(await result_of(self._native.app(node, message_bytes))))

    @checked
    def listen(
        self, node: Annotated[int, Between(0, 2**31)], folder: str | os.PathLike[str]
    ) -> str:
        """Let other processes of this user use the node's service, and return the path to `attach`.

        Makes `folder` with mode 0700 and a socket in it; a node listens at one place. The cluster
        must be on real nodes, as those of ``Cluster.local(fabric="shm", mode="thread")`` are.
        """
        return str(self._native.listen(node, os.fspath(folder)))

    @checked
    def hang_up(self, node: Annotated[int, Between(0, 2**31)]) -> None:
        """End the applications that are attached to a node, and listen no more."""
        self._native.hang_up(node)

    @checked
    def attached(self, node: Annotated[int, Between(0, 2**31)]) -> int:
        """Return how many applications are attached to a node."""
        return int(self._native.applications(node))

    @checked
    def counters(self, node: Annotated[int, Between(0, 2**31)]) -> dict[str, float]:
        """Return what the service of a node has counted so far."""
        return dict(self._native.counters(node))

    @checked
    def clear_caches(self, node: Annotated[int, Between(0, 2**31)]) -> None:
        """Forget the metadata and the regions that a node has cached."""
        self._native.clear_caches(node)
