"""What every cluster is, however it was made; `pyrdma.Cluster` adds how to make one."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from ._native import native
from ._workload import Parameters, Workload
from .errors import InvalidArgument, Unavailable
from .result import Result, Sample

__all__ = ["ClusterBase", "Columns"]

Columns = Mapping[str, Any]
"""What nodes measured: lists ``metric``, ``unit``, ``value``, ``node``, ``thread``; the same of
``histograms``: ``metric``, ``node``, ``encoded``; and the devices' ``notices``, ``noticed_by``."""

Self = TypeVar("Self", bound="ClusterBase")

_THREADS = (
    "node {} is threads of this process and cannot be {} alone; "
    "use Cluster.local(..., mode='process') or Cluster.sim(...)"
)


class ClusterBase(ABC):
    """Some nodes and what connects them; see `pyrdma.Cluster`.

    Attributes
    ----------
    nodes
        Number of nodes.
    fabric, clock, seed
        What results say of where they were measured.
    """

    fabric = ""
    clock = "real"

    def __init__(self, nodes: int, seed: int) -> None:
        self.nodes = nodes
        self.seed = seed

    def run(
        self,
        workload: Workload,
        duration_s: float | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        """Run a workload on every node, wait for all, and return what they measured.

        Parameters
        ----------
        duration_s
            Time to measure after the warm-up, in the cluster's clock; the workload's default,
            or its ``iterations``, if None.
        timeout_s
            Real time after which the run is given up; 60 s more than the duration if None.
            Simulations have none.

        Raises
        ------
        InvalidArgument
            A parameter is wrong: key, value and bound are named.
        Error
            A node failed or was killed; it is named, and the cluster is closed.
        Timeout
            The run did not end in time.

        Warns
        -----
        RuntimeWarning
            The device of a node has something to say of what was measured, as that there were no
            huge pages, or that its port went down.
        """
        parameters = workload.parameters(duration_s)
        limit = timeout_s if timeout_s is not None else 60.0 + 2 * (duration_s or 0.0)
        columns = self._run(workload.name, parameters, limit)
        nodes: dict[str, list[int]] = {}
        for node, text in zip(columns["noticed_by"], columns["notices"], strict=True):
            nodes.setdefault(text, []).append(node)
        for text, noticed_by in nodes.items():
            where = ", ".join(map(str, noticed_by))
            warnings.warn(f"node {where}: {text}", RuntimeWarning, stacklevel=2)
        return self._result(parameters, columns)

    def _result(self, parameters: Parameters, columns: Columns) -> Result:
        names = ("node", "thread", "metric", "value", "unit")
        rows = zip(*(columns[name] for name in names), strict=True)
        samples = [Sample(int(n), int(t), m, float(v), u) for n, t, m, v, u in rows]
        histograms: dict[str, list[bytes]] = {}
        encoded = columns["histograms"]
        for name, payload in zip(encoded["metric"], encoded["encoded"], strict=True):
            histograms.setdefault(name, []).append(payload)
        params = {k: v for k, v in parameters.items() if not isinstance(v, list)}
        return Result(
            samples,
            histograms,
            fabric=self.fabric,
            clock=self.clock,
            seed=self.seed,
            params=params,
        )

    @abstractmethod
    def _run(self, name: str, parameters: Parameters, timeout_s: float) -> Columns:
        """Run a native workload on all nodes; return what they measured."""

    @property
    def devices(self) -> Sequence[Any]:
        """The nodes' devices, for experiments of one's own; see `pyrdma.verbs`."""
        raise Unavailable(
            "the nodes of this cluster are other processes; for their devices use "
            "Cluster.sim(...) or Cluster.local(..., mode='thread')"
        )

    def fault_counters(self) -> dict[str, tuple[int, int]]:
        """Return how often each fault fired, and how often it reached what it aims at."""
        core: Any = native()
        return {fault["key"]: (0, 0) for fault in core.sim.faults()}

    @abstractmethod
    def kill(self, node: int) -> None:
        """End a node as if its power went; its peers get retry-exceeded and flushes."""

    def restart(self, node: int) -> None:
        """Start a node again in place of its killed one; peers connect to it anew.

        Raises
        ------
        Unavailable
            Its nodes are threads of this process, which end together.
        """
        raise Unavailable(_THREADS.format(self._check_node(node), "started again"))

    def pause(self, node: int, duration_s: float) -> None:  # noqa: ARG002 - as the others have it
        """Stop a node's threads for a while; its memory goes on serving peers.

        Raises
        ------
        Unavailable
            Its nodes are threads of this process, which stop together.
        """
        raise Unavailable(_THREADS.format(self._check_node(node), "paused"))

    @abstractmethod
    def close(self) -> None:
        """End all nodes. Idempotent."""

    def __enter__(self: Self) -> Self:  # noqa: PYI019 - typing.Self is of Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_node(self, node: int) -> int:
        if not 0 <= node < self.nodes:
            raise InvalidArgument(f"node {node} is not one of 0 to {self.nodes - 1}")
        return node
