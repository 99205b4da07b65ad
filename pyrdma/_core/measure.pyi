from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from . import Cluster

class Histogram:
    """Latencies in ns: 1 ns to 1 h, three significant digits."""

    def __init__(self) -> None: ...
    def record(self, value: int, times: int = ...) -> None:
        """Record a value, or the same one several times."""

    def record_array(self, values: npt.ArrayLike) -> None:
        """Record every element."""

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram."""

    @property
    def total(self) -> int:
        """Values recorded."""

    @property
    def min(self) -> int:
        """The least value (ns); 0 if there is none."""

    @property
    def max(self) -> int:
        """The largest value (ns); 0 if there is none."""

    def mean(self) -> float:
        """Mean of the values (ns); 0 if there is none."""

    def percentile(self, percent: float) -> int:
        """Value (ns) that `percent` of the values do not exceed."""

    def encode(self) -> bytes:
        """HdrHistogram V2 encoding, not compressed."""

    @staticmethod
    def decode(encoded: bytes) -> Histogram:
        """Decode what `encode` returned."""

def run_workload(cluster: Cluster, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Run a workload on every node of the cluster in this process and return its columns."""

def workloads() -> list[dict[str, Any]]:
    """Every workload: name, docstring, whether it survives kills."""

def check_parameters(name: str, params: dict[str, Any]) -> None:
    """Raise InvalidArgument for a wrong parameter."""

def workload_parameters(name: str) -> list[dict[str, Any]]:
    """Parameters of a workload."""

def cpu_operation_ns(kind: str, footprint: int, duration_ns: int) -> float:
    """Mean time of one operation of this machine's CPU; see native/measure/cpu_ops/cpu_ops.h."""

def code_instructions() -> float:
    """Instructions of one operation of the kind `code`."""

def zipf_sample(
    elements: int, exponent: float, count: int, seed: int = ...
) -> npt.NDArray[np.uint64]:
    """Ranks (0 is the most frequent) with probability proportional to 1/(rank+1)^exponent."""
