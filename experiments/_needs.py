"""A decider for claims about systems that an experiment does not run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyrdma.claims import Claim
from pyrdma.data import Data, NotEvaluated
from pyrdma.decide import Decider

__all__ = ["Needs", "Undecidable", "each", "needs"]


class Needs(NotEvaluated):
    """The claim needs a part that its experiment does not run."""


@dataclass(frozen=True)
class Undecidable:
    """A decider that leaves its claim not evaluated for `reason`."""

    reason: str

    def __call__(self, data: Data, claim: Claim) -> bool:  # noqa: ARG002 - a decider's signature
        raise Needs(self.reason)


def needs(what: str) -> Decider:
    """Leave a claim not evaluated: deciding it needs `what`."""
    return Undecidable(f"needs {what}")


def each(claims: Iterable[str], decider: Decider) -> dict[str, Decider]:
    """Give the same decider to several claims."""
    return dict.fromkeys(claims, decider)
