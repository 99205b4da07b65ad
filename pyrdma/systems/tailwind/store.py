"""A store for scripts: its servers, its coordinator, and a client."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pyrdma.arguments import Between, checked
from pyrdma.cluster import Cluster
from pyrdma.errors import InvalidArgument, Timeout, Unavailable
from pyrdma.systems.operation import PerNode, open_cluster, result_of, waits

from .objects import MOST_KEY, MOST_VALUE, NO_OBJECT, check_status, checked_key, checked_value
from .recovery import COLUMNS, Crash, Recovery, recovery_of

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Store"]

Replication = Literal["ramcloud", "tailwind"]
"""How a primary brings its log to its backups: an RPC to each, or one RDMA write to each."""
Durability = Literal["completion", "flush"]
"""When a write counts as being at a backup: it has completed, or a read behind it has."""
Placement = Literal["random", "best_of_five", "groups"]
"""Which servers a primary asks for replicas."""
Bytes = Annotated[int, Between(1 << 20, 1 << 46)]
Segment = Annotated[int, Between(64 << 10, (16 << 20) - 1)]
Count = Annotated[int, Between(1, 1 << 40)]
Wait = Annotated[float, Between(0.0, 1e6)]
"""Seconds of the fabric's clock."""
Moment = Annotated[int, Between(0, 2**63 - 1)]
"""A time of the fabric's clock, in nanoseconds."""

_TABLE = "script"


class Store(PerNode):
    """A store on the nodes of a cluster: servers, then the coordinator, then others.

    The native parts are made at the first use. A dead server is recovered if at least
    ``replicas + 1`` servers are left.

    What is acknowledged is in the memory of ``replicas`` backups, and on a disk when its segment is
    full. It survives the death of ``replicas`` servers, the primary among them. The Tailwind paper
    assumes batteries that save the memory of all; only simulated nodes have them. On real hosts the
    death of more servers loses what is not on a disk.

    Parameters
    ----------
    cluster
        The cluster; its nodes live in this process.
    replication
        ``tailwind``: a primary writes to buffers of the backups by RDMA, and their CPUs do nothing.
        ``ramcloud``: a primary sends an RPC to each backup.
    replicas
        Number of replicas of each segment of a log, beside the primary's memory.
    servers
        Number of servers, which are the first nodes; by default all nodes but the last one.
    durability
        ``completion``: a write is durable when it has completed, as in the paper. ``flush``: a read
        of no bytes behind it must have completed, too.
    placement
        Which servers a primary asks for replicas.
    workers
        Number of threads of a server beside its dispatch thread; 0: that thread does all work.
    group_commit
        A server without workers writes to its backups once for all requests that it has, 64 at
        most. Needs ``workers=0``. Not in the paper.
    log_bytes
        Memory of a server's log; at least two segments, at most ``segment_bytes**2 / 64``. An
        object takes 42 B beside key and value. The cleaner keeps a part to work in: a log of 32
        segments or more is full when 96 % are in use, one of fewer segments at 87 % to 95 %. Memory
        is taken as the log grows; over verbs all of it is registered at the start.
    keys
        Number of objects that the hash table of a server has room for, at about 10 B each. With
        more objects it is slower.
    segment_bytes
        Size of a segment, and of a buffer at a backup.
    buffers
        Buffers of a backup.
    partition_bytes, partition_records
        The most that one server recovers of another one.
    lease_s
        Seconds for which a server may serve without the coordinator.
    timeout_s
        Seconds of the fabric's clock after which a wait of the script's client for the coordinator
        or a server fails.
    """

    @checked
    def __init__(
        self,
        cluster: Cluster,
        replication: Replication = "tailwind",
        replicas: Annotated[int, Between(0, 16)] = 3,
        servers: Annotated[int, Between(1, 1000)] | None = None,
        durability: Durability = "completion",
        placement: Placement = "random",
        workers: Annotated[int, Between(0, 64)] = 2,
        group_commit: bool = False,
        log_bytes: Bytes = 256 << 20,
        keys: Count = 1_000_000,
        segment_bytes: Segment = 8 << 20,
        buffers: Annotated[int, Between(2, 65_536)] = 32,
        partition_bytes: Count = 500_000_000,
        partition_records: Count = 2_000_000,
        lease_s: Annotated[float, Between(1e-4, 1e4)] = 0.25,
        timeout_s: Annotated[float, Between(1e-3, 1e6)] = 60.0,
    ) -> None:
        super().__init__(cluster)
        self.servers = cluster.nodes - 1 if servers is None else servers
        if self.servers < 1 or self.servers >= cluster.nodes:
            raise InvalidArgument(
                f"servers is {self.servers}; a cluster of {cluster.nodes} nodes has room for 1 to "
                f"{cluster.nodes - 1} servers and the coordinator"
            )
        if replicas >= self.servers:
            raise InvalidArgument(
                f"replicas is {replicas}; each replica lies at another server, so with "
                f"{self.servers} servers give 0 to {self.servers - 1}"
            )
        if group_commit and workers != 0:
            raise InvalidArgument(
                f"workers is {workers}, and a worker writes to backups for one request at a time; "
                "with group_commit give workers=0"
            )
        if log_bytes < 2 * segment_bytes:
            raise InvalidArgument(
                f"log_bytes is {log_bytes}; give at least two segments, {2 * segment_bytes} bytes, "
                f"or a segment_bytes below {segment_bytes}"
            )
        if log_bytes > segment_bytes**2 // 64:
            raise InvalidArgument(
                f"log_bytes is {log_bytes}; a segment's digest names all others, which limits the "
                f"log to segment_bytes**2 / 64: give {segment_bytes**2 // 64} or less, or larger "
                "segments"
            )
        self.replication = replication
        self.replicas = replicas
        self._timeout_s = timeout_s
        core_names = {
            "replication": ("ramcloud", "tailwind").index(replication),
            "durability": ("completion", "flush").index(durability),
            "placement": ("random", "best_of_five", "groups").index(placement),
        }
        self._options: dict[str, Any] = {
            **core_names,
            "servers": self.servers,
            "replicas": replicas,
            "workers": workers,
            "group_commit": group_commit,
            "log_bytes": log_bytes,
            "keys": keys,
            "segment_bytes": segment_bytes,
            "buffers": buffers,
            "partition_bytes": partition_bytes,
            "partition_records": partition_records,
            "lease_ns": round(lease_s * 1e9),
        }
        self._tables: dict[tuple[int, ...], int] = {}
        self._filled = 0

    @property
    def coordinator(self) -> int:
        """The node of the coordinator. The script's client runs there, too."""
        return self.servers

    def _make(self, core: Any) -> Any:
        return core.tailwind.Stores(open_cluster(self.cluster), self._options)

    async def _made_table(self, owners: Sequence[int] = ()) -> int:
        """Return the number of the table that these servers have; make it at the first use."""
        known = tuple(owners)
        if known not in self._tables:
            name = "/".join([_TABLE, *map(str, known)])
            self._tables[known] = await result_of(
                self._native.create_table(
                    self.coordinator, name, list(owners), self.servers, self._timeout_s
                )
            )
        return self._tables[known]

    _table = waits(_made_table)

    @waits
    async def write(self, key: bytes, value: bytes) -> int:
        """Store an object, and return its version; all backups have the object then.

        Each write of a key has a higher version than those before it.

        Parameters
        ----------
        key
            Up to 65,535 bytes.
        value
            Up to 1 MiB.

        Raises
        ------
        Timeout
            A server has not answered. The object may still be stored later.
        Exhausted
            The log of the server has no room for the object.
        """
        table = await self._made_table()
        status, version = await result_of(
            self._native.write(
                self.coordinator, table, checked_key(key), checked_value(value), self._timeout_s
            )
        )
        check_status(status)
        return int(version)

    @waits
    async def read(self, key: bytes) -> bytes | None:
        """Return the value of an object, or None if there is none.

        Parameters
        ----------
        key
            The key of the object.
        """
        table = await self._made_table()
        status, _, value = await result_of(
            self._native.read(self.coordinator, table, checked_key(key), self._timeout_s)
        )
        if status == NO_OBJECT:
            return None
        check_status(status)
        return bytes(value)

    @waits
    async def remove(self, key: bytes) -> bool:
        """Remove an object, and return whether there was one.

        Parameters
        ----------
        key
            The key of the object.
        """
        table = await self._made_table()
        status, _ = await result_of(
            self._native.remove(self.coordinator, table, checked_key(key), self._timeout_s)
        )
        if status == NO_OBJECT:
            return False
        check_status(status)
        return True

    @waits
    async def fill(
        self,
        objects: Count,
        value_bytes: Annotated[int, Between(8, MOST_VALUE)] = 100,
        key_bytes: Annotated[int, Between(8, MOST_KEY)] = 30,
        primary: int | None = None,
    ) -> None:
        """Store objects without a client; the servers replicate them in batches.

        The objects have new keys, which a script does not know.

        Parameters
        ----------
        objects
            Number of objects.
        value_bytes, key_bytes
            Size of each value, and of each key.
        primary
            The server that gets all of them; by default all servers have a share.

        Raises
        ------
        Exhausted
            A log is full.
        Unavailable
            A server died or is down, and nobody has recovered its part yet; or `primary` died, and
            others own its part now.
        """
        owners = [] if primary is None else [self._server("primary", primary)]
        table = await self._made_table(owners)
        rows = await result_of(self._native.tablets(self.coordinator)) if owners else ()
        if owners and not any((row[0], row[3]) == (table, primary) for row in rows):
            raise Unavailable(
                f"server {primary} died, and others have recovered its objects and own that table "
                "now; fill without primary, or use another Store"
            )
        # A call that ends early may have stored some; the next one has other keys all the same.
        stored, first = 0, self._filled
        self._filled += objects
        for server in owners or range(self.servers):
            if owners or await result_of(self._native.runs(server)):
                stored += await result_of(
                    self._native.fill(server, table, first, objects, key_bytes, value_bytes)
                )
        if stored != objects:
            raise Unavailable(
                f"{stored} of {objects} objects are stored: the others' servers died, or their "
                "recovery has not ended; call await_recovery first"
            )

    @checked
    def crash(self, node: int, timeout_s: Wait = 600.0) -> Crash:
        """Kill a server, and wait until the others have recovered its objects.

        Parameters
        ----------
        node
            The node of the server.
        timeout_s
            Limit of the wait.

        Raises
        ------
        Timeout
            The recovery has not ended; the message says how far it came.
        """
        server = self._server("node", node)
        self._table()
        killed = self._native.now(self.coordinator)
        self.cluster.kill(server)
        return Crash(server, self.await_recovery(server, killed, timeout_s))

    @checked
    def await_recovery(self, node: int, killed_ns: Moment, timeout_s: Wait = 600.0) -> Recovery:
        """Wait for the recovery of a server that ``cluster.kill`` has killed.

        Parameters
        ----------
        node
            The node of the server.
        killed_ns
            Time of the fabric's clock at which the server died. Earlier deaths do not count.
        timeout_s
            Limit of the wait.

        Raises
        ------
        Timeout
            The recovery has not ended; the message says how far it came.

        Warns
        -----
        RuntimeWarning
            More servers have died than the store survives; the text says what is lost.
        """
        server = self._server("node", node)
        row = self._native.await_recovery(self.coordinator, server, killed_ns, timeout_s)
        if row["ended_ns"] == 0:
            raise Timeout(
                f"server {server} is not recovered after {timeout_s:g} s and {row['attempts']} "
                f"attempts: {row['problem'] or self._progress(row)}"
            )
        if row["lost"]:
            warnings.warn(
                f"the log of server {server} was recovered without {row['lost']}: objects may be "
                "missing, old, or back though they were removed",
                RuntimeWarning,
                stacklevel=2,
            )
        return recovery_of(row, killed_ns)

    def _progress(self, row: dict[str, Any]) -> str:
        """Say how far a recovery came that has not ended and has no problem of its own."""
        if row["declared_ns"] == 0:
            return "nobody has found out that it is dead"
        return (
            "the new owners have not stored and replicated everything; do at least "
            f"{self.replicas + 1} servers run, as {self.replicas} replicas need?"
        )

    def _server(self, name: str, value: object) -> int:
        """Return the node of a server."""
        server = self._node(name, value)
        if server >= self.servers:
            raise InvalidArgument(
                f"{name} is {server}; the servers are nodes 0 to {self.servers - 1}"
            )
        return server

    @checked
    def restart(self, node: int) -> None:
        """Start a killed server, or the coordinator, again; it finds what its disk has.

        A server gets a new identity. It has no objects until a table is made or a server dies.

        Parameters
        ----------
        node
            The node of the server or of the coordinator.

        Raises
        ------
        InvalidArgument
            The server lives: kill it first. One that was taken for dead may start again.
        Unavailable
            The nodes are threads of this process, which cannot start again alone.
        """
        self.cluster.restart(self._node("node", node))
        self._native.restart(node)

    def counters(self) -> DataFrame:
        """Return what the servers have counted: columns ``node``, ``counter``, ``value``.

        ``dispatch_ns`` and ``worker_ns`` are times for which these threads were busy, and
        ``replication_ns`` is that for which workers waited for backups. A killed server shows its
        last counts.
        """
        from pandas import DataFrame

        rows = [
            (node, name, value)
            for node in range(self.servers)
            for name, value in self._native.counters(node)
        ]
        return DataFrame(rows, columns=["node", "counter", "value"])

    def problems(self) -> DataFrame:
        """Return what the backups of the servers have found wrong: ``node``, ``problem``.

        A problem names a replica or a file that is damaged and not used, or what the disk of the
        node cannot take now. The store goes on while other replicas are whole.
        """
        from pandas import DataFrame

        servers = range(self.servers)
        rows = [(node, text) for node in servers for text in self._native.problems(node)]
        return DataFrame(rows, columns=["node", "problem"])

    def recoveries(self) -> DataFrame:
        """Return all recoveries so far: a row for each dead server.

        Columns that end with ``_ns`` are times of the fabric's clock; 0: not yet. A recovery that
        cannot go on says why in ``problem``. When every server has told what it has and the log is
        not whole, what is there is recovered, and ``lost`` says what is not.
        """
        from pandas import DataFrame

        return DataFrame(self._native.recoveries(self.coordinator), columns=list(COLUMNS))

    def tablets(self) -> DataFrame:
        """Return which server has which hashes: ``table``, ``first``, ``last``, ``node``.

        A hash is that of a key; ``first`` and ``last`` belong to the range.
        """
        from pandas import DataFrame

        rows = self._native.tablets(self.coordinator)
        return DataFrame(rows, columns=["table", "first", "last", "node"])
