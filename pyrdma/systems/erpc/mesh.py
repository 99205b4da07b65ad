"""The endpoints of a cluster, their handlers, and sessions for scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any, Literal

from typing_extensions import Self

from pyrdma.arguments import Between, checked
from pyrdma.cluster import Cluster
from pyrdma.errors import Error, InvalidArgument, Timeout
from pyrdma.systems.operation import PerNode, open_cluster, result_of, waits

__all__ = ["Echo", "Mesh", "RpcFailed", "RpcTimeout", "Session", "Sized", "Spin"]

Preset = Literal["paper", "public", "best"]
"""The protocol: the paper's, that with the public program's constants, or the improved one."""
RequestType = Annotated[int, Between(0, 255)]
"""The type of a request, which chooses its handler."""
Wait = Annotated[float, Between(1e-6, 1e6)]
"""Seconds of the fabric's clock."""

_PRESETS = ("paper", "public", "best")
_MOST = 1 << 16


@dataclass(frozen=True)
class Echo:
    """A native handler that answers with the request."""


@checked
@dataclass(frozen=True)
class Sized:
    """A native handler that answers with `size` zero bytes."""

    size: Annotated[int, Between(0, 1 << 24)]


@checked
@dataclass(frozen=True)
class Spin:
    """A native handler that computes for `ns`, then answers with the request."""

    ns: Annotated[int, Between(0, 10**10)]


Handler = Echo | Sized | Spin | Callable[[bytes], bytes]


class RpcFailed(Error):
    """A request has ended without its response.

    ``definite`` tells whether the handler certainly has not run; ``nodes`` has the server.

    Attributes
    ----------
    outcome : str
        ``not sent``, ``session lost``, ``no handler``, ``response too long``,
        ``the handler failed`` or ``no answer``.
    """

    outcome: str = ""


class RpcTimeout(RpcFailed, Timeout):
    """A request had no answer in time. Its handler may have run, or may run yet."""


class Session:
    """A session between two nodes, made by `Mesh.connect`; several threads may use it at once.

    A call takes the way through the thread of its node's endpoint, which costs a few hundred ns
    more than the RPC. Workloads measure RPCs without it.
    """

    @checked
    def __init__(
        self, mesh: Mesh, node: int, to: int, number: Annotated[int, Between(0, 2**32 - 1)]
    ) -> None:
        self.mesh = mesh
        self.node = mesh._node("node", node)
        self.to = mesh._node("to", to)
        self._number: int | None = number

    @waits
    async def call(
        self,
        type: RequestType,  # noqa: A002 - the paper's name
        data: bytes,
        *,
        most: Annotated[int, Between(0, 1 << 24)] = _MOST,
        timeout_s: Wait = 10.0,
    ) -> bytes:
        """Send a request and return its response.

        Parameters
        ----------
        type
            The type of the request; the server's handler of it runs.
        data
            The request; at most 8 MiB.
        most
            The longest response, in bytes.
        timeout_s
            Time to wait, in seconds of the fabric's clock.

        Raises
        ------
        RpcFailed
            Without a response. `RpcTimeout` after the time.
        """
        ((outcome, may_have_run, reply),) = await result_of(
            self._send(type, [data], most, timeout_s)
        )
        if outcome != "ok":
            raise await self._failed(type, outcome, may_have_run, reply, timeout_s)
        return bytes(reply)

    @waits
    async def calls(
        self,
        type: RequestType,  # noqa: A002 - the paper's name
        requests: Sequence[bytes],
        *,
        most: Annotated[int, Between(0, 1 << 24)] = _MOST,
        timeout_s: Wait = 10.0,
        return_errors: bool = False,
    ) -> list[Any]:
        """Send requests, up to 16 under way at once, and return their responses in order.

        With `return_errors`, an `RpcFailed` stands in the place of each request that has failed.
        Otherwise the first one is raised after all requests have ended.
        """
        replies: list[Any] = []
        errors: list[RpcFailed] = []
        for outcome, may_have_run, reply in await result_of(
            self._send(type, list(requests), most, timeout_s)
        ):
            if outcome != "ok":
                errors.append(await self._failed(type, outcome, may_have_run, reply, timeout_s))
            replies.append(reply if outcome == "ok" else errors[-1])
        if errors and not return_errors:
            raise errors[0]
        return replies

    def _send(
        self,
        type: int,  # noqa: A002 - the paper's name
        requests: list[bytes],
        most: int,
        timeout_s: float,
    ) -> Any:
        """Send requests; `result_of` what this returns has a row of each answer."""
        return self.mesh._native.call(self.node, self._open(), type, requests, most, timeout_s)

    @waits
    async def close(self) -> None:
        """End the session. Raises InvalidArgument while requests are under way."""
        if self._number is not None:
            await result_of(self.mesh._native.disconnect(self.node, self._number))
            self._number = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._number is None else "open"
        return f"<Session of node {self.node} to node {self.to}, {state}>"

    def _open(self) -> int:
        if self._number is None:
            raise InvalidArgument(
                f"the session of node {self.node} to node {self.to} is closed; "
                f"mesh.connect(node={self.node}, to={self.to}) makes another one"
            )
        return self._number

    async def _failed(
        self,
        type: int,  # noqa: A002 - the paper's name
        outcome: str,
        may_have_run: bool,
        reply: bytes,
        timeout_s: float,
    ) -> RpcFailed:
        """Return the error of a request, with what to do."""
        what = {
            "no handler": f"mesh.serve({self.to}, {type}, handler) adds one",
            "response too long": "raise `most`",
            "the handler failed": reply.decode(errors="replace"),
            "no answer": f"it had {timeout_s:g} s; does the handler take longer, or never answer? "
            "Raise timeout_s",
        }.get(outcome, "")
        if outcome in ("session lost", "not sent"):
            why = await result_of(self.mesh._native.why_lost(self.node, self._open()))
            what = f"{why or 'the server is gone'}; connect to a node that lives"
        may = "may have run" if may_have_run else "has not run"
        kind = RpcTimeout if outcome == "no answer" else RpcFailed
        error = kind(
            f"request of type {type} to node {self.to}: {outcome}: {what}; the handler {may}"
        )
        error.outcome = outcome
        error.definite = not may_have_run
        error.nodes = (self.to,)
        return error


class Mesh(PerNode):
    """The RPC endpoints of a cluster: one for each thread of each node (eRPC, section 3.1).

    Workloads take a mesh and make its endpoints on every node. A script serves and calls through
    one more endpoint per node, whose event loop has a thread of its own; it needs a cluster in this
    process and is made at the first `serve` or `connect`.

    Parameters
    ----------
    cluster
        The cluster whose nodes take part.
    threads
        Endpoints of a node under a workload; 1 to 64.
    preset
        The protocol of the endpoints.
    workers
        Threads of each node for handlers that take long, and for Python functions; 0 to 64.
    """

    @checked
    def __init__(
        self,
        cluster: Cluster,
        threads: Annotated[int, Between(1, 64)] = 1,
        preset: Preset = "best",
        workers: Annotated[int, Between(0, 64)] = 0,
    ) -> None:
        super().__init__(cluster)
        self.threads = threads
        self.preset = preset
        self.workers = workers

    def _make(self, core: Any) -> Any:
        cluster = open_cluster(self.cluster)
        return core.erpc.Endpoints(cluster, _PRESETS.index(self.preset), self.workers)

    @checked
    def serve(
        self,
        node: int,
        type: RequestType,  # noqa: A002 - the paper's name
        handler: Handler,
        *,
        in_worker: bool = False,
    ) -> None:
        """Let `node` answer requests of `type`.

        Parameters
        ----------
        node
            The server.
        type
            The type of the requests; each has one handler.
        handler
            `Echo`, `Sized`, `Spin`, or a Python function from bytes to bytes, which runs in a
            worker thread and not in the simulator. What it raises goes to the client.
        in_worker
            Whether a worker thread runs the native handler; for those that take over 1 us. One that
            takes over 0.5 s outside of a worker ends the sessions of all its clients.
        """
        self._node("node", node)
        is_python = not isinstance(handler, Echo | Sized | Spin)
        if (is_python or in_worker) and self.workers == 0:
            raise InvalidArgument(
                f"the handler of type {type} needs a worker thread, and the mesh has workers=0; "
                "make it with Mesh(cluster, workers=1) or more"
            )
        if is_python:
            self._native.serve_python(node, type, handler)
            return
        (value,) = (*vars(handler).values(), 0)[:1]
        self._native.serve(node, type, handler.__class__.__name__.lower(), value, in_worker)

    @waits
    async def connect(self, node: int, to: int, *, timeout_s: Wait = 10.0) -> Session:
        """Return a session of `node` to another node.

        Raises `pyrdma.Timeout`, naming the node, if it does not answer.
        """
        self._node("node", node)
        if self._node("to", to) == node:
            raise InvalidArgument(f"node and to are both {node}; a session joins two nodes")
        number = await result_of(self._native.connect(node, to, timeout_s))
        return Session(self, node, to, number)

    def __repr__(self) -> str:
        return f"Mesh(threads={self.threads}, preset={self.preset!r})"
