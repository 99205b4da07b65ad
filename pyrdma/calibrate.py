"""Measure costs of this machine's CPU, as lines of a profile.

Copies and the clock can be measured on any machine. The costs of a NIC (doorbells, posts, polls of
its queues) need a NIC and are left out; `pyrdma.scopes` counts the work of protocols.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from . import provenance
from .cluster import Cluster
from .workload import Memcpy

__all__ = ["Measured", "measure"]

NEAR, LAST_LEVEL, MEMORY = 1 << 17, 1 << 22, 1 << 28
"""Bytes of the memory that copies cycle through: in the second-level cache, the last, in none."""

COPY = 4096
"""Bytes of a copy."""


@dataclass(frozen=True)
class Measured:
    """One parameter of a profile, as measured on this machine."""

    key: str
    value: float
    unit: str
    source: str

    def line(self) -> str:
        """Return the parameter as a line of the profile's table."""
        name = self.key.split(".")[1]
        value = f'value = {self.value:.4g}, unit = "{self.unit}", source = "{self.source}"'
        return f"{name} = {{ {value} }}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def measure() -> list[Measured]:
    """Measure for about a second."""
    model = provenance.collect()["cpu"]["model"]
    source = f"measured: pyrdma calibrate on {model}"
    places = (("near", NEAR), ("llc", LAST_LEVEL), ("memory", MEMORY))
    return [
        *(
            Measured(f"cpu.{name}_copy_gbps", COPY * 8 / _copy_ns(footprint), "Gbps", source)
            for name, footprint in places
        ),
        Measured("cpu.clock_read_ns", _clock_read_ns(), "ns", source),
    ]


def _copy_ns(footprint: int) -> float:
    """Return the mean time of a native copy within memory of `footprint` bytes."""
    with Cluster.local(nodes=1, fabric="shm", mode="thread") as cluster:
        memcpy = Memcpy(size=COPY, footprint_bytes=footprint // 2)
        result = cluster.run(memcpy, duration_s=0.1)
    return 1e9 / result.value("rate")


def _clock_read_ns() -> float:
    """Return the cost of reading the monotonic clock, without the cost of the loop around it."""

    def per_turn(call: Callable[[], object]) -> float:
        turns = 20_000
        begin = time.perf_counter_ns()
        for _ in range(turns):
            call()
        return (time.perf_counter_ns() - begin) / turns

    nothing = (0).__hash__
    return max(1.0, median(per_turn(time.monotonic_ns) - per_turn(nothing) for _ in range(9)))
