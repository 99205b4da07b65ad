from collections.abc import Mapping

from . import Cluster as _Cluster

class Cluster(_Cluster):
    """A cluster whose nodes are threads of this process."""

    def __init__(self, nodes: int, seed: int = ..., faults: Mapping[str, float] = ...) -> None: ...
    def fault_counters(self) -> dict[str, tuple[int, int]]:
        """How often each fault fired, and had its effect. Not while a run is on."""

class Node(_Cluster):
    """A session in which this process is one node."""

    def __init__(
        self, session: str, node: int, nodes: int, token: str, faults: Mapping[str, float] = ...
    ) -> None: ...
    def fault_counters(self) -> dict[str, tuple[int, int]]:
        """How often each fault fired, and had its effect. Not while a run is on."""

class Session:
    """The controller's end of a run whose nodes are processes."""

    def __init__(self, nodes: int, seed: int = ...) -> None: ...
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
