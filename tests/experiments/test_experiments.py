"""The experiment files load, have points, and decide existing claims."""

from __future__ import annotations

import hashlib

import pytest

from pyrdma import claims, registry

# Hashes of the original claims files: a claim must not be edited to make it hold.
CLAIMS_SHA256 = {
    "erpc": "8059a315ee0df1bccdc9a684acfc28dee0895f2d25cc3e18ba219fa5e4b1509f",
    "krcore": "5919e841b482951099de3e14838d5ae298c9946c6db0757f0a7adb3641cddd98",
    "loco": "55b51f7b64a1b396b9a4c2a72e77366852e1f01e67c7ef413acadcb3dd12dd96",
    "spindle": "5a5793eaee766c0c50aa1f4479fbb66fb7d891764b90c7c255f99ca116b517ee",
    "tailwind": "0ec757028cab22f2c85572dfa8bbc6a1444c292fa156c7aa1551f7b42b7919e6",
}

REQUIRED = (
    "fabric/latency",
    "fabric/bandwidth",
    "fabric/rate",
    "spindle/fig1",
    "spindle/fig14",
    "erpc/fig1",
    "erpc/table2",
    "erpc/fig6",
    "krcore/fig3a",
    "krcore/fig3b",
    "krcore/fig8a",
    "krcore/fig10a",
    "krcore/fig10b",
    "krcore/fig10c",
    "krcore/fig10d",
    "loco/appC_linearizability",
    "loco/fig1b",
    "loco/fig4_single_lock",
    "loco/fig4_transactions",
    "loco/fig5",
    "loco/fig7",
    "loco/litmus",
    "loco/nic_facts",
    "loco/sec7_2_fence",
)


@pytest.mark.parametrize("paper", CLAIMS_SHA256)
def test_claims_are_as_handed_over(paper: str) -> None:
    content = (registry.root() / "claims" / f"{paper}.yaml").read_bytes()
    assert hashlib.sha256(content).hexdigest() == CLAIMS_SHA256[paper]


def test_required_experiments_are_there() -> None:
    assert set(REQUIRED) <= set(registry.ids())


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
    assert {c.id for c in known.values() if c.experiment in REQUIRED} <= decided
