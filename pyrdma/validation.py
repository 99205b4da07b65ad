"""One entry of ``pyrdma validate``: a number of a workload that runs in both worlds."""

from __future__ import annotations

from dataclasses import dataclass

from ._workload import DEFAULT, Workload
from .result import Value

__all__ = ["Validation"]


@dataclass(frozen=True)
class Validation:
    """One number of one workload, which both worlds run with equal parameters.

    A node has one busy thread, so that two nodes fit on two cores. A workload with more threads, or
    with a polling thread, says so in `threads` and then needs more cores. ``pyrdma validate``
    leaves out an entry that needs more than 2 cores and more than the machine has, unless
    ``--only`` names it.

    Parameters
    ----------
    name
        ``<system>/<number>``, or ``fabric/<number>`` for raw operations.
    workload
        The work of each node.
    metric, unit
        The number, as a row of the run's table names it: ``rate``, ``read_latency_p50``.
    nodes
        Number of nodes.
    threads
        Busy threads of a node.
    """

    name: str
    workload: Workload
    metric: str = "rate"
    unit: str = "op/s"
    nodes: int = 2
    threads: int = 1

    @property
    def cores(self) -> int:
        """Cores that the entry needs: one for each busy thread."""
        return self.nodes * self.threads

    def params(self) -> dict[str, Value]:
        """Return the workload as the parameters of a stored point."""
        given = {name: value for name, value in vars(self.workload).items() if value is not DEFAULT}
        return {"workload": type(self.workload).__name__, "nodes": self.nodes, **given}
