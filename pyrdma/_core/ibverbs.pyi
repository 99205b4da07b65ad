from collections.abc import Sequence
from typing import Any

from . import Cluster as _Cluster
from .verbs import QueuePair

class Cluster(_Cluster):
    """All nodes as threads of this process, over one device."""

    def __init__(
        self,
        nodes: int,
        seed: int = ...,
        device: str = ...,
        port: int = ...,
        gid_index: int = ...,
        address: str = ...,
    ) -> None: ...

class Node(_Cluster):
    """A session in which this process is one node."""

    def __init__(
        self,
        session: str,
        node: int,
        nodes: int,
        token: str,
        device: str = ...,
        port: int = ...,
        gid_index: int = ...,
        address: str = ...,
        clock: Clock | None = ...,
        neighbours: int = ...,
    ) -> None: ...
    @property
    def choice(self) -> str:
        """The device, port and GID in use, and the reasons for the choice."""

class Clock:
    """The clock of this machine, which its nodes share."""

    def __init__(self) -> None: ...
    @staticmethod
    def from_parts(parts: Sequence[int]) -> Clock:
        """Make the clock of another process of this machine."""

    @property
    def parts(self) -> list[int]:
        """Three numbers, for another process."""

    @property
    def now_ns(self) -> int:
        """The time in ns."""

    def adjusted(self, at_ns: int, offset_ns: int, drift: float) -> Clock:
        """Return the clock on another machine's scale: t becomes t + offset + drift * (t - at)."""

class Session:
    """The controller's end of a run whose nodes are processes."""

    def __init__(
        self, nodes: int, seed: int = ..., address: str = ..., clock: Clock | None = ...
    ) -> None: ...
    @property
    def name(self) -> str:
        """Name by which the nodes find the session."""

    @property
    def token(self) -> str:
        """Secret that admits a node."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""

    @property
    def dead_nodes(self) -> list[int]:
        """Nodes whose process ended without leaving the run."""

    @property
    def now_ns(self) -> int:
        """Time of the run."""

    def incarnation(self, node: int) -> int:
        """How often another process has replaced an ended process of the node."""

    def end(self, node: int) -> None:
        """Report that the node's process has ended; another process may replace it."""

class Connection:
    """A connection made by librdmacm."""

    @property
    def private_data(self) -> bytes:
        """The private bytes of the peer."""

    @property
    def is_over(self) -> bool:
        """True if the peer has closed the connection; the queue pair is then in the error state."""

class Listener:
    """Waits for connections by librdmacm."""

    def __init__(self, address: str, port: int = ...) -> None: ...
    @property
    def port(self) -> int:
        """The port that it listens on."""

    def accept(
        self, queue_pair: QueuePair, private_data: bytes = ..., timeout_s: float = ...
    ) -> Connection:
        """Connect the next peer that asks to `queue_pair`."""

def connect(
    queue_pair: QueuePair,
    address: str,
    port: int,
    private_data: bytes = ...,
    timeout_s: float = ...,
) -> Connection:
    """Connect `queue_pair` to the listener at `address` and `port`."""

def has_provider() -> bool:
    """Return whether this build has the provider for real NICs."""

def problem() -> str:
    """Why build or libraries prevent opening a device; empty if they do not."""

def candidates() -> list[dict[str, Any]]:
    """Every entry of the GID tables of all devices."""

def choose(
    device: str = ..., port: int = ..., gid_index: int = ..., address: str = ...
) -> dict[str, Any]:
    """Return the device, port and GID that a node with these wishes would use."""
