"""The outcome of a fuzzer's seeds: counters and violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import protocol

__all__ = ["Summary"]

_OF_SYSTEMS = {
    *("branches", "begun", "begun_under_faults", "ended", "met_fault", "crashed_after"),
    *("reconnects", "restarts", "checks", "shares"),
}
"""Fields of a summary that only the runs of native systems count."""
_CHANCE = 1e-4
"""A check counts as too rare if its share of seeds is this unlikely at the least share."""


@dataclass
class Check:
    """In how many seeds an end check was made, and why it was not in the others."""

    made: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """Seeds by reason."""


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
    checks: dict[str, Check] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    """The least share of seeds that make a check."""
    begun: int = 0
    begun_under_faults: int = 0
    ended: int = 0
    met_fault: int = 0
    """Operations during which a fault had an effect."""
    crashed_after: list[int] = field(default_factory=list)
    """The number of operations begun before each crash of a node."""
    reconnects: int = 0
    restarts: int = 0
    undecided: list[int] = field(default_factory=list)
    """Seeds with a history that the checker gave up on: neither correct nor wrong."""
    given_up: Counter[str] = field(default_factory=Counter)
    """The number of these seeds by the model of the history."""
    violations: list[dict[str, Any]] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)
    interrupted: bool = False

    @property
    def failed_seeds(self) -> int:
        """Number of seeds with a violation, or with a second run that differed."""
        return len({v["seed"] for v in self.violations} | set(self.differing))

    @property
    def rare_checks(self) -> list[str]:
        """Checks that fewer seeds made than their least share allows."""
        rare = [
            name
            for name, least in self.shares.items()
            if self.checks.get(name, Check()).made < least * self.seeds
        ]
        if not rare:
            return []
        from scipy.stats import binom  # takes long to load

        return [
            name
            for name in rare
            if binom.cdf(self.checks.get(name, Check()).made, self.seeds, self.shares[name])
            < _CHANCE
        ]

    @property
    def too_many_undecided(self) -> bool:
        """Whether the checker gave up on more histories than the checks' least shares leave out."""
        return any(
            count > round((1 - self.shares.get(model, 1)) * self.seeds, 6)
            for model, count in self.given_up.items()
        )

    @property
    def never(self) -> list[str]:
        """What no seed reached: branches, faults that fired without an effect, and checks."""
        return [
            *(f"branch {name}" for name, count in self.branches.items() if not count),
            *(f"effect of fault {name}" for name in self.fired if not self.reached[name]),
            *(f"check {name}" for name, check in self.checks.items() if not check.made),
        ]

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
            self.given_up.update(set(found["undecided"]))
        if protocol.is_file(self.system):
            return
        for branch, count in found["branches"].items():
            self.branches[branch] += count
        self.begun += found["begun"]
        self.begun_under_faults += found["begun_under_faults"]
        self.ended += found["ended"]
        self.met_fault += found["met_fault"]
        for name, reason in found["checks"].items():
            check = self.checks.setdefault(name, Check())
            if reason:
                check.skipped[reason] += 1
            else:
                check.made += 1
        self.crashed_after += found["crashed_after"]
        self.reconnects += found["reconnects"]
        self.restarts += found["restarts"]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; of a file without what only native systems count."""
        values = {**vars(self), "failed_seeds": self.failed_seeds, "bound_95": self.bound}
        values["checks"] = {name: vars(check) for name, check in self.checks.items()}
        values["rare_checks"] = self.rare_checks
        left_out = _OF_SYSTEMS if protocol.is_file(self.system) else set()
        return {name: value for name, value in values.items() if name not in left_out}
