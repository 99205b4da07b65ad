"""What a calibration measures, and the machines that it can measure: this one, or a simulated one.

A measurement returns nanoseconds: the time of one operation, or the median latency of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from pyrdma import provenance
from pyrdma._native import native
from pyrdma._workload import Workload
from pyrdma.cluster import Cluster
from pyrdma.cluster_base import ClusterBase
from pyrdma.workload import VerbsLoad

__all__ = ["Caches", "LocalMachine", "Machine", "Point", "Samples", "simulate"]

_RUN_S = 0.003
"""A run is shorter than a time slice of the kernel, so that most runs have their cores alone."""

_WARMUP_NS = 300_000
_OPERATION_NS = 20_000_000


@dataclass(frozen=True)
class Point:
    """A run of a workload, and the number that it is about.

    Attributes
    ----------
    metric
        ``rate``: the time of one operation, from the rate of all nodes. Otherwise the name of a
        latency, whose median counts.
    nodes
        Number of nodes; 0: one on each core.
    length
        Factor of the time of a run, for a point that must walk through much memory first.
    """

    workload: Workload
    metric: str = "rate"
    nodes: int = 2
    length: int = 1

    def run(self, cluster: ClusterBase, duration_s: float, warmup_ns: int) -> float:
        """Run the workload and return nanoseconds. One that counts ignores the duration."""
        counted = getattr(self.workload, "duration_ns", None) == 0
        load = (
            self.workload if counted else replace(self.workload, **_warm(self.workload, warmup_ns))
        )
        result = cluster.run(load, duration_s=None if counted else duration_s)
        if self.metric == "rate":
            return 1e9 / result.value("rate")
        return float(result.latency(self.metric).percentile(50))


def _warm(workload: Workload, warmup_ns: int) -> dict[str, int]:
    known = {field.name for field in fields(workload)}
    return {"warmup_ns": warmup_ns} if "warmup_ns" in known else {}


@dataclass(frozen=True)
class Caches:
    """Bytes of the second-level cache of a core and of the last-level cache."""

    near: int
    llc: int
    source: str

    @classmethod
    def of_this_machine(cls) -> Caches:
        """Read the sizes that the kernel reports for the first core."""
        found: dict[int, int] = {}
        for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            try:
                level = int((index / "level").read_text())
                size = (index / "size").read_text().strip()
            except (OSError, ValueError):
                continue
            if size.endswith("K") and size[:-1].isdigit():
                found[level] = max(found.get(level, 0), int(size[:-1]) << 10)
        if 2 not in found:
            return cls(1 << 20, 16 << 20, "estimate: the kernel reports no caches; usual sizes")
        return cls(
            found[2],
            found[max(found)],
            "measured: size that the kernel reports in /sys/devices/system/cpu/cpu0/cache",
        )


class Machine(Protocol):
    """A machine that can be calibrated."""

    caches: Caches
    cores: int

    def operation(self, kind: str, bytes_: int = 0) -> float:
        """Measure one operation of the CPU; ``native/measure/cpu_ops/cpu_ops.h`` lists them."""

    def code_instructions(self) -> float:
        """Return the instructions of the operation ``code``."""

    def run(self, point: Point) -> float:
        """Measure a point."""


class LocalMachine:
    """The machine that runs this code, with two nodes over a fabric."""

    def __init__(self, fabric: str, device: str = "") -> None:
        self.fabric = fabric
        self.device = device
        self.caches = Caches.of_this_machine()
        self.cores = provenance.usable_cores()
        self._stack = ExitStack()
        self._clusters: dict[int, ClusterBase] = {}
        self._cluster(2)  # a missing device is an error now, not after the CPU's measurements

    def close(self) -> None:
        """End the nodes."""
        self._stack.close()

    def operation(self, kind: str, bytes_: int = 0) -> float:
        """Measure one operation of the CPU."""
        core: Any = native()
        return float(core.measure.cpu_operation_ns(kind, bytes_, _OPERATION_NS))

    def code_instructions(self) -> float:
        """Count the instructions of the operation ``code`` in the compiled code."""
        core: Any = native()
        return float(core.measure.code_instructions())

    def run(self, point: Point) -> float:
        """Measure a point. Two nodes use the fabric; other numbers of nodes only their CPUs."""
        cluster = self._cluster(point.nodes or self.cores)
        return point.run(cluster, _RUN_S * point.length, _WARMUP_NS * point.length)

    def _cluster(self, nodes: int) -> ClusterBase:
        if nodes not in self._clusters:
            place = (self.fabric, self.device) if nodes == 2 else ("shm", "")
            cluster = Cluster.local(nodes=nodes, fabric=place[0], device=place[1])
            self._clusters[nodes] = self._stack.enter_context(cluster)
        return self._clusters[nodes]


def simulate(values: Mapping[str, float], point: Point, cores: int, about_ns: float) -> float:
    """Return what a point measures in the simulator; `about_ns` is what it measured elsewhere."""
    duration_s = min(4e-3, max(2e-5, about_ns * 2e-6))  # 2,000 operations
    if isinstance(point.workload, VerbsLoad) and point.metric == "rate":
        # A load reads the clock a thousand times. In so short a run that is every operation.
        values = {**values, "cpu.clock_read_ns": 0}
    with Cluster.sim(
        nodes=point.nodes or cores, profile="cx5", overrides=values, cores_per_node=cores
    ) as cluster:
        return point.run(cluster, duration_s, 10_000)


class Samples:
    """Measurements that are repeated in turn, so that a disturbance meets all of them alike.

    The lower quartile counts, not the median: other programs on the machine can only add time, and
    on a shared machine they add it to many repetitions.
    """

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def take(self, measurements: Mapping[str, Callable[[], float]], repetitions: int) -> None:
        """Repeat all measurements."""
        for _ in range(repetitions):
            for name, measure in measurements.items():
                self._values.setdefault(name, []).append(measure())

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def quartile(self, name: str) -> float:
        """Return the lower quartile of a measurement."""
        values = sorted(self._values[name])
        return values[(len(values) - 1) // 4]

    def spread(self, name: str) -> float:
        """Return the distance of the median from the lower quartile, relative to the quartile."""
        return median(self._values[name]) / self.quartile(name) - 1

    def spreads(self) -> dict[str, float]:
        """Return the spread of every measurement."""
        return {name: self.spread(name) for name in self._values}
