"""The methods that all clusters share; `pyrdma.Cluster` makes clusters."""

from __future__ import annotations

import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from ._native import native
from ._program import GRACE_NS, Program, by_node, checked_model, refuse_import
from ._workload import Parameters, Workload, in_effect
from .arguments import Duration, Seconds, checked, whole
from .conditions import collected, flag_threads
from .errors import Unavailable
from .provenance import usable_cores
from .result import Result, Sample

__all__ = ["ClusterBase", "Columns"]

Columns = Mapping[str, Any]
"""The nodes' measurements: lists ``metric``, ``unit``, ``value``, ``node``, ``thread``;
``histograms`` with lists ``metric``, ``node``, ``encoded``; the list ``histories`` of JSON Lines;
and the devices' ``notices`` with the nodes in ``noticed_by``."""

Self = TypeVar("Self", bound="ClusterBase")

_THREADS = (
    "node {} runs as threads of this process and cannot be {} alone; "
    "use Cluster.local(..., mode='process') or Cluster.sim(...)"
)


class ClusterBase(ABC):
    """Nodes and the fabric between them; see `pyrdma.Cluster`.

    Attributes
    ----------
    nodes
        Number of nodes.
    fabric, clock, seed
        Labels of the results: where and with which seed they were measured.
    """

    fabric = ""
    clock = "real"
    _on_this_machine = True

    def __init__(self, nodes: int, seed: int) -> None:
        refuse_import()
        self.nodes = nodes
        self.seed = seed
        # Objects whose native parts are made at their first use, in the order of their creation.
        self._objects: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._numbers = itertools.count()

    @checked
    def run(
        self,
        workload: Workload,
        duration_s: Duration | None = None,
        timeout_s: Duration | None = None,
    ) -> Result:
        """Run a workload on every node, wait for all nodes, and return their measurements.

        Parameters
        ----------
        duration_s
            Time to measure after the warm-up, in the cluster's clock. If None, the workload's
            default or its ``iterations`` end the run.
        timeout_s
            Real time after which the run fails; 60 s more than twice the duration if None.
            Simulations have no such limit.

        Raises
        ------
        InvalidArgument
            A parameter is wrong: key, value and bound are named.
        Error
            A node failed or was killed; it is named, and the cluster is closed.
        Timeout
            The run did not end in time, or another program has stopped a node, which is named.

        Warns
        -----
        RuntimeWarning
            The device of a node reports a condition that affects the measurement, such as missing
            huge pages or a port that went down.
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
        used = in_effect(workload.name, parameters)
        point = collected.get()
        if point is not None:
            point.ran(workload.name, self.nodes, used)
        result = self._result(used, columns)
        if self.clock == "real" and self._on_this_machine:
            flag_threads(result, usable_cores())
        workload._ended(result)
        return result

    @checked
    def program(
        self,
        functions: Program | Mapping[Any, Program],
        *,
        deadline_s: Duration = 10.0,
        duration_s: Duration | None = None,
        model: str = "",
    ) -> Result:
        """Run an ``async def`` function on each node; see `pyrdma.program`.

        Parameters
        ----------
        functions
            One function for all nodes, or a mapping from nodes (a number, a tuple or range of
            numbers, ``"rest"``) to functions. A node without one only serves one-sided requests.
            `functools.partial` gives a function further arguments.
        deadline_s
            Time of the cluster's clock after which the run fails, with the tasks that still wait.
        duration_s
            Time after which the run ends in good order, for programs without an end of their own.
        model
            Model of the history that ``node.invoke`` records, for `pyrdma.check`.

        Raises
        ------
        Timeout
            The functions have not ended within `deadline_s`.
        NodeEnded
            The process of a node has ended.

        Other errors are those of the functions; of a node process they come as `pyrdma.Error` with
        file and line. The result has what the functions have recorded.
        """
        programs = by_node(functions, self.nodes)
        for made in list(self._objects.values()):
            made._prepare()
        limit = deadline_s if duration_s is None else duration_s
        columns = self._program(
            programs,
            deadline_ns=round(limit * 1e9),
            deadline_fails=duration_s is None,
            grace_ns=GRACE_NS[self.clock],
            model=checked_model(model) if model else "",
        )
        name = "deadline_s" if duration_s is None else "duration_s"
        return self._result({name: limit}, columns)

    @abstractmethod
    def _program(self, functions: Mapping[int, Any], **options: Any) -> Columns:
        """Run the functions of the nodes that have one; return what they have recorded."""

    def _result(self, parameters: Parameters, columns: Columns) -> Result:
        names = ("node", "thread", "metric", "value", "unit")
        rows = zip(*(columns[name] for name in names), strict=True)
        samples = [Sample(int(n), int(t), m, float(v), u) for n, t, m, v, u in rows]
        histograms: dict[str, list[bytes]] = {}
        encoded = columns["histograms"]
        for name, payload in zip(encoded["metric"], encoded["encoded"], strict=True):
            histograms.setdefault(name, []).append(payload)
        return Result(
            samples,
            histograms,
            fabric=self.fabric,
            clock=self.clock,
            seed=self.seed,
            params=parameters,
            histories=list(columns["histories"]),
        )

    @abstractmethod
    def _run(self, name: str, parameters: Parameters, timeout_s: float) -> Columns:
        """Run a native workload on all nodes; return their measurements."""

    @property
    def devices(self) -> Sequence[Any]:
        """The nodes' devices, for your own experiments; see `pyrdma.verbs`."""
        raise Unavailable(
            "the nodes of this cluster are other processes; for their devices use "
            "Cluster.sim(...) or Cluster.local(..., mode='thread')"
        )

    def devices_of(self, node: int) -> Sequence[Any]:
        """Return all devices of a node, by number. Only simulated nodes have several."""
        return [self.devices[self._check_node(node)]]

    def fault_counters(self) -> dict[str, tuple[int, int]]:
        """Return how often each fault fired, and how often it reached its target."""
        core: Any = native()
        return {fault["key"]: (0, 0) for fault in core.sim.faults()}

    @abstractmethod
    def kill(self, node: int) -> None:
        """End a node as by a loss of power; its peers get retry-exceeded and flushes."""

    def restart(self, node: int) -> None:
        """Start a killed node again; its peers must connect again.

        Raises
        ------
        Unavailable
            The nodes are threads of this process, which end together.
        """
        raise Unavailable(_THREADS.format(self._check_node(node), "started again"))

    @checked
    def pause(self, node: int, duration_s: Seconds) -> None:  # noqa: ARG002 - as the others have it
        """Stop a node's threads for a while; peers can still access its memory.

        Raises
        ------
        Unavailable
            The nodes are threads of this process, which stop together.
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

    def _check_node(self, node: int, name: str = "node") -> int:
        return whole(name, node, 0, self.nodes - 1)
