"""The kinds of faults of simulated clusters, and random subsets of them.

``Cluster.sim(..., faults={"loss": 0.01, "crash.rate": 0.5, "heal_at_ns": 2e6})`` turns kinds on.
A kind's rate is a probability for each opportunity (``draw``) or for each node (``run``), or a mean
number per virtual millisecond in the whole cluster (``window``). A fault that lasts has the
settings ``.min_ns`` and ``.max_ns``. ``heal_at_ns`` ends all faults. With ``first_fault`` and
``last_fault`` only the faults of these numbers happen, counted from 0 in the order of the run.
"""

from __future__ import annotations

from typing import Any

from ._native import native
from .arguments import Fraction, Seed, checked

__all__ = ["OF_ALL_KINDS", "random", "table"]

OF_ALL_KINDS = ("heal_at_ns", "first_fault", "last_fault", "coordinator")
"""Settings that are of no single kind."""


def table() -> list[dict[str, Any]]:
    """Return every kind: key, number, draw, default rate, default durations, meaning."""
    core: Any = native()
    return list(core.sim.faults())


@checked
def random(seed: Seed, probability: Fraction = 0.25) -> dict[str, float]:
    """Return the random subset of `seed`, in the form that `Cluster.sim` takes.

    Each kind is on with `probability`, at 1/4 to 4 times the table's rate.
    """
    core: Any = native()
    return dict(core.sim.random_faults(seed, probability))
