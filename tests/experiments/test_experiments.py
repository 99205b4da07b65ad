"""The experiment files load, have points, and decide existing claims.

``required/PAPER.yaml`` names the experiments that a paper must have. ``claims_sha256`` is the hash
of its original claims file, because a claim must not be edited to make it hold.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrdma import claims, registry

FOLDER = Path(__file__).parent / "required"
REQUIRED: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("*.yaml"))
}
EXPERIMENTS = {f"{paper}/{name}" for paper in REQUIRED for name in REQUIRED[paper]["experiments"]}


def test_every_paper_has_its_hash() -> None:
    assert {paper for paper in REQUIRED if "claims_sha256" in REQUIRED[paper]} == set(
        claims.papers()
    )


@pytest.mark.parametrize("paper", claims.papers())
def test_claims_are_as_handed_over(paper: str) -> None:
    content = (registry.root() / "claims" / f"{paper}.yaml").read_bytes()
    assert hashlib.sha256(content).hexdigest() == REQUIRED[paper]["claims_sha256"]


def test_required_experiments_are_there() -> None:
    assert EXPERIMENTS
    assert set(registry.ids()) >= EXPERIMENTS


@pytest.mark.parametrize("name", registry.ids())
def test_experiment_loads_and_sweeps(name: str) -> None:
    experiment = registry.load(name)
    quick = list(experiment.points(quick=True))
    full = list(experiment.points(quick=False))
    assert quick
    assert len(full) >= len(quick)
    assert experiment.measure is None or experiment.figure is not None
    assert all(experiment.why_not.get(f) for f in ("shm",) if f not in experiment.fabrics) or (
        experiment.measure is None
    )


@pytest.mark.parametrize("name", [n for n in registry.ids() if n.startswith("fabric/")])
def test_fabric_experiments_run_everywhere(name: str) -> None:
    assert set(registry.load(name).fabrics) == {"sim", "shm", "verbs"}


def test_every_claim_of_an_experiment_is_decided_or_has_a_reason() -> None:
    """Expect a decider for every claim; a claim of another system names that system."""
    known = claims.load()
    decided = set(claims.deciders())
    assert {c.id for c in known.values() if c.experiment in EXPERIMENTS} <= decided
