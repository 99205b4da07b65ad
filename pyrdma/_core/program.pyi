"""Node programs; `pyrdma.program` is the documented interface."""

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from . import Cluster
from .verbs import CompletionQueue, Device

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")

class Operation(Generic[_T_co]):
    """What a node program awaits, once; ``await`` returns its result."""

    def __await__(self) -> Generator[Any, None, _T_co]: ...
    def __iter__(self) -> Operation[_T_co]: ...
    def __next__(self) -> Operation[_T_co]: ...
    def result(self) -> _T_co:
        """Return what ``await`` returns, after it."""

class Task(Generic[_T_co]):
    """A coroutine that a node runs beside others; `Node.spawn` starts one."""

    def __await__(self) -> Generator[Any, None, _T_co]: ...
    @property
    def name(self) -> str:
        """Name of the coroutine's function."""

    @property
    def done(self) -> bool:
        """Whether the task has ended."""

    def cancel(self) -> None:
        """End the task's await, or its next one, with `pyrdma.Cancelled`."""

class Event:
    """Tasks of a node wait for it until another task of the node sets it."""

    @property
    def is_set(self) -> bool:
        """Whether it is set."""

    def set(self) -> None:
        """Let all waits end."""

    def clear(self) -> None:
        """Let later waits wait again."""

    def wait(self, timeout_s: float | None = None) -> Operation[bool]:
        """Await it; the result is False if `timeout_s` has passed first."""

class Request:
    """A message that an `Inbox` has got."""

    @property
    def data(self) -> bytes:
        """The bytes that the sender has given."""

    @property
    def source(self) -> int:
        """Node that has sent it."""

    @property
    def wants_reply(self) -> bool:
        """Whether the sender waits for a reply: `Peer.call`, not `Peer.send`."""

    def reply(self, data: object = b"") -> Operation[None]:
        """Await it to answer with up to the inbox's `max_bytes`.

        A sender that has ended gets nothing.
        """

class Inbox:
    """Requests to a service of a node.

    ``async for request in inbox`` takes one after another until the program ends.
    """

    def __aiter__(self) -> AsyncIterator[Request]: ...
    def __anext__(self) -> Operation[Request]: ...
    def receive(self, timeout_s: float | None = None) -> Operation[Request | None]:
        """Await the next request; the result is None if `timeout_s` has passed first."""

class Peer:
    """A connection to the inbox of a node. Up to 16 calls of several tasks may be under way."""

    def call(self, data: object = b"", timeout_s: float = 1.0) -> Operation[bytes]:
        """Await the reply, bytes.

        Raises Timeout after `timeout_s`, and Unavailable when the connection has failed; the
        request may have been served in both cases.
        """

    def send(self, data: object = b"", timeout_s: float = 1.0) -> Operation[None]:
        """Await that the message is on its way; the receiver does not reply."""

class OpenOperation:
    """An operation of a history that has begun; see `Node.invoke`."""

    def ok(self, value: object = None) -> None:
        """Record that it has happened, with this result."""

    def fail(self) -> None:
        """Record that it has certainly not happened."""

    def info(self) -> None:
        """Record that it may have happened, or may still happen: a call without a reply."""

class Node:
    """The node that a program runs on, the first argument of its function."""

    @property
    def id(self) -> int:
        """Number of the node, from 0."""

    @property
    def nodes(self) -> int:
        """Number of nodes of the cluster."""

    @property
    def incarnation(self) -> int:
        """How often the node has been started again after a kill."""

    @property
    def device(self) -> Device:
        """The node's first RDMA device, of `pyrdma.verbs`; calls that wait go through `do`."""

    @property
    def random(self) -> random.Random:
        """A random.Random of the node; equal seeds give equal numbers."""

    def now(self) -> int:
        """Return the node's clock in ns; virtual in the simulated world."""

    def sleep(self, s: float = 0.0, *, ns: int = 0) -> Operation[None]:
        """Await it to let time pass, ``s`` seconds and ``ns`` nanoseconds; the CPU is free."""

    def work(self, s: float = 0.0, *, ns: int = 0) -> Operation[None]:
        """Await it to keep a CPU of the node busy; Python code itself takes no virtual time."""

    def do(self, function: Callable[..., _T], *args: Any, **kwargs: Any) -> Operation[_T]:
        """Await ``function(*args, **kwargs)``, a plain function that may wait.

        Such as the allocation of memory. In the simulated world the methods of systems' objects
        take a few us of real time; any other function gets an OS thread, which takes 50 us. Ctrl-C
        ends the function where it next runs Python code, so not within ``time.sleep``.
        """

    def awaits(self, object: object) -> Any:
        """Return the object for use by this node's tasks: its methods are awaited.

        ``await awaited.method(...)`` is ``await node.do(object.method, ...)``. A keyword
        ``node`` of the method is this node by default.
        """

    def spawn(self, coroutine: Coroutine[Any, Any, _T]) -> Task[_T]:
        """Start a task of this node: a thread of its own, with a clock and a CPU.

        An error that no other task awaits ends the program.
        """

    def event(self) -> Event:
        """Make an `Event` for tasks of this node."""

    def poll(
        self,
        queue: CompletionQueue,
        max: int = 16,
        timeout_s: float | None = None,
        check: bool = True,
    ) -> Operation[npt.NDArray[np.void]]:
        """Await completions, as `CompletionQueue.poll` returns them.

        There are none if ``timeout_s`` has passed first.
        """

    def bind(self, service: str, depth: int = 64, max_bytes: int = 4096) -> Operation[Inbox]:
        """Await an `Inbox` for the service.

        Up to ``depth`` requests may wait in it, of up to ``max_bytes``.
        """

    def connect(self, service: str, to: int, timeout_s: float = 1.0) -> Operation[Peer]:
        """Await a `Peer`: a connection to the inbox of node ``to``, which may bind it later."""

    def record(self, name: str, latency_ns: int) -> None:
        """Add a latency to the histogram ``name`` of the result.

        The metric ``name`` is the number of these latencies.
        """

    def count(self, name: str, n: float = 1.0, unit: str = "count") -> None:
        """Add to the metric ``name`` of this node in the result."""

    def invoke(self, function: str, key: object = None, value: object = None) -> OpenOperation:
        """Begin an operation of the history, such as ``invoke('write', 'x', 3)``.

        Its `ok`, `fail` or `info` ends it.
        """

def run(
    cluster: Cluster,
    functions: Mapping[int, Callable[[Node], Coroutine[Any, Any, Any]]],
    deadline_ns: int,
    deadline_fails: bool,
    grace_ns: int,
    model: str = "",
    run: int = -1,
    members: Sequence[int] = ...,
) -> dict[str, Any]:
    """Run an async function on each node that has one, and return their columns."""
