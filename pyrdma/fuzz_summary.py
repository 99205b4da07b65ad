"""The outcome of a fuzzer's seeds: counters and violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import protocol

__all__ = ["Summary"]

_OF_SYSTEMS = {"branches", "begun", "begun_under_faults", "crashed_after", "reconnects", "restarts"}
"""Fields of a summary that only the runs of native systems count."""


@dataclass
class Summary:
    """The outcome of many seeds. Counters are sums."""

    system: str
    seeds: int = 0
    virtual_ns: int = 0
    events: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    branches: Counter[str] = field(default_factory=Counter)
    """How often the runs took each rare branch of the protocols; 0 for a branch never taken."""
    begun: int = 0
    begun_under_faults: int = 0
    crashed_after: list[int] = field(default_factory=list)
    """The number of operations begun before each crash of a node."""
    reconnects: int = 0
    restarts: int = 0
    undecided: list[int] = field(default_factory=list)
    """Seeds with a history that the checker gave up on: neither correct nor wrong."""
    violations: list[dict[str, Any]] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)
    interrupted: bool = False

    @property
    def failed_seeds(self) -> int:
        """Number of seeds with a violation, or with a second run that differed."""
        return len({v["seed"] for v in self.violations} | set(self.differing))

    @property
    def bound(self) -> float | None:
        """The 95 % upper bound of a decided seed's probability to fail; None if a seed failed."""
        decided = self.seeds - len(self.undecided)
        if self.failed_seeds or not decided:
            return None
        return float(1 - 0.05 ** (1 / decided))

    def add(self, found: Mapping[str, Any]) -> None:
        """Count one seed's run."""
        self.seeds += 1
        self.virtual_ns += found["virtual_ns"]
        self.events += found["events"]
        self.operations.update({name: found[name] for name in ("ok", "fail", "info")})
        self.fired.update(found["fired"])
        self.reached.update(found["reached"])
        if found["undecided"]:
            self.undecided.append(found["seed"])
        if protocol.is_file(self.system):
            return
        for branch, count in found["branches"].items():
            self.branches[branch] += count
        self.begun += found["begun"]
        self.begun_under_faults += found["begun_under_faults"]
        self.crashed_after += found["crashed_after"]
        self.reconnects += found["reconnects"]
        self.restarts += found["restarts"]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; of a file without what only native systems count."""
        values = {**vars(self), "failed_seeds": self.failed_seeds, "bound_95": self.bound}
        left_out = _OF_SYSTEMS if protocol.is_file(self.system) else set()
        return {name: value for name, value in values.items() if name not in left_out}
