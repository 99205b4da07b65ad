"""A decider for claims about systems that an experiment does not run."""

from __future__ import annotations

from collections.abc import Iterable

from pyrdma.claims import Claim
from pyrdma.data import Data, NotEvaluated
from pyrdma.decide import Decider

__all__ = ["Needs", "each", "needs", "undecidable"]


class Needs(NotEvaluated):
    """The claim needs a part that its experiment does not run."""


def needs(what: str) -> Decider:
    """Leave a claim not evaluated: deciding it needs `what`."""
    return undecidable(f"needs {what}")


def undecidable(reason: str) -> Decider:
    """Leave a claim not evaluated for `reason`."""

    def decide(data: Data, claim: Claim) -> bool:  # noqa: ARG001 - a decider's signature
        raise Needs(reason)

    return decide


def each(claims: Iterable[str], decider: Decider) -> dict[str, Decider]:
    """Give the same decider to several claims."""
    return dict.fromkeys(claims, decider)
